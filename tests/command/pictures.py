"""Makes the two pictures of the README: the page of the session's program, in light and in dark.

usage: pictures.py CISTERN SHIM FOLDER
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import browser

CISTERN, SHIM, FOLDER = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "demo" / "train.py"
VIEWS = {"page-light.png": {"dark": False}, "page-dark.png": {"dark": True}}


def main():
    if not browser.program():
        print("pictures: no Chromium")
        return 77
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        shutil.copy(PROGRAM, folder)
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        subprocess.run([CISTERN, "run", "-o", "run", "--", "python3", "train.py"], check=True, cwd=folder,
                       env={**os.environ, "LIBCISTERN_LIBRARY": str(SHIM), "PATH": path})
        subprocess.run([CISTERN, "html", "run", "-o", "run.html"], check=True, cwd=folder)
        FOLDER.mkdir(parents=True, exist_ok=True)
        page = browser.Browser()
        try:
            for name, view in VIEWS.items():
                page.load(folder / "run.html", width=1200, height=760, **view)
                if page.complaints:
                    print("pictures:", page.complaints)
                    return 1
                page.picture(FOLDER / name, whole=False)
                if (FOLDER / name).stat().st_size < 10_000:
                    print(f"pictures: {name} shows nothing")
                    return 1
        finally:
            page.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
