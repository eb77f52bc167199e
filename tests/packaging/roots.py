"""Bare systems, in which packages are installed and programs run: made by debootstrap once, kept in build/roots."""
import hashlib
import os
import pathlib
import shutil
import subprocess
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "build" / "roots"
DEBIAN, UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"
# Their C library, and for Ubuntu, whose keys Debian does not have, the digest of the index of the release: it is final.
SYSTEMS = {
    "bullseye": ("2.31", DEBIAN, None),
    "bookworm": ("2.36", DEBIAN, None),
    "trixie": ("2.41", DEBIAN, None),
    "bionic": ("2.27", UBUNTU, "fc6f245afe3b6b664bd2209327dc6ad2ae873b381d3809edd708fcdf5377c598"),
    "focal": ("2.31", UBUNTU, "b9bd2f365e20c6f6628377839a020e4ade7b204acd42569e0da49b414026de40"),
    "jammy": ("2.35", UBUNTU, "6883c1cb0fcfeefc2ad2e99746fcbb28cf8b2df66ce49904765d883dbf94a1ca"),
    "noble": ("2.39", UBUNTU, "26758a13cecfaff9ff274d31ea9a4633674a999bd130c09f6ecd66a4b8071184"),
}


class Unavailable(Exception):
    """Why there is no such system here."""


def why_none():
    if os.geteuid() != 0:
        return "roots of other systems need the rights of root"
    if not shutil.which("debootstrap"):
        return "debootstrap is not installed (scripts/setup --long)"
    return None


def make(name, packages, architecture=None, kept_as=None):
    """The folder of the system. Of another architecture it is only unpacked: its programs run under an emulator."""
    if reason := why_none():
        raise Unavailable(reason)
    place = FOLDER / (kept_as or name)
    made = place / "made-for-tests"
    if made.exists() and made.read_text() == ",".join(packages):
        return place
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    _, mirror, digest = SYSTEMS[name]
    options = ["--variant=minbase", "--include=" + ",".join(packages), "--components=main,universe"]
    script = []
    if digest:
        try:
            with urllib.request.urlopen(f"{mirror}/dists/{name}/Release", timeout=60) as answer:
                found = hashlib.sha256(answer.read()).hexdigest()
        except OSError as error:
            raise Unavailable(f"{mirror} is not reachable ({error})") from None
        assert found == digest, f"the index of {name} is not what it was"
        options.append("--no-check-gpg")
        script = ["/usr/share/debootstrap/scripts/gutsy"]
    if architecture:
        options += ["--foreign", f"--arch={architecture}"]
    # What it mounts goes when it ends, however that is.
    it = subprocess.run(["unshare", "-m", "debootstrap", *options, name, place, mirror, *script], capture_output=True,
                        text=True)
    if it.returncode != 0:
        raise Unavailable(f"debootstrap {name}: {(it.stdout + it.stderr).strip().splitlines()[-1]}")
    shutil.copy("/etc/resolv.conf", place / "etc/resolv.conf")
    made.write_text(",".join(packages))
    return place


# With its own /proc, /sys and /dev, which go when the command ends, and the folders that it is shown.
ENTER = r"""
set -e
place=$1; shift
mount --rbind /dev "$place/dev"; mount -t proc proc "$place/proc"; mount -t sysfs sysfs "$place/sys"
while [ "$1" != -- ]; do mkdir -p "$place$2"; mount --bind "$1" "$place$2"; shift 2; done
shift
exec chroot "$place" "$@"
"""


def run(place, *command, shown=(), timeout=120, **environment):
    """`shown`: pairs of folders here and there. What it printed, and its exit status."""
    folders = [str(folder) for pair in shown for folder in pair]
    values = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
              "DEBIAN_FRONTEND": "noninteractive"}
    # The loader of the commands on the way is not the one that is to preload anything.
    inside = ["env", *(f"{name}={value}" for name, value in environment.items())] if environment else []
    return subprocess.run(["unshare", "-m", "sh", "-c", ENTER, "enter", place, *folders, "--", *inside,
                           *map(str, command)], env=values, capture_output=True, text=True, timeout=timeout)
