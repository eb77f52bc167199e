"""Reads a recording after shim/doc/recording-format.md, apart from the reader that is tested."""
import collections
import struct

HEADER, CHUNK, HEAD = 4096, 64 << 10, 64
NONE, EVENTS, KEPT, DEFINITIONS = range(4)
TYPES = ("allocation", "free", "resized", "failed", "copy")
MASK = (1 << 64) - 1

Event = collections.namedtuple("Event", "time type kind address bytes site thread weight")


class Bytes:
    def __init__(self, data):
        self.data, self.at = data, 0

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def number(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def difference(self):
        coded = self.number()
        return coded >> 1 if not coded & 1 else ~(coded >> 1)

    def take(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def text(self):
        return self.take(self.number()).decode(errors="replace")

    def __bool__(self):
        return self.at < len(self.data)


class Recording:
    def __init__(self, path):
        data = path.read_bytes()
        assert data[:8] == b"cistrec\n", data[:8]
        (self.version, header, chunk, self.pid, self.start, self.zero, self.ns_per_tick, self.host_sample, self.epoch,
         self.thinned_events, self.thinned_until, self.lost_events, self.lost_since, self.stopped, self.ended, names_at,
         names_bytes) = struct.unpack_from("<4I2Qd10Q", data, 8)
        assert (self.version, header, chunk) == (1, HEADER, CHUNK)
        self.kinds, self.sites, self.threads, self.modules, self.lines = {}, {}, {}, {}, {}
        events = []
        end = names_at or len(data)
        chunks = [self.chunk(data, at) for at in range(HEADER, end - CHUNK + 1, CHUNK)]
        for kind, _, committed in filter(None, chunks):
            if kind == DEFINITIONS:
                self.define(Bytes(committed))
        for kind, first, committed in filter(None, chunks):
            if kind != DEFINITIONS:
                events += self.read_events(first, Bytes(committed))
        self.kept = sum(bool(chunk) and chunk[0] == KEPT for chunk in chunks)
        self.events = sorted(events, key=lambda event: (event.time, event.type != "free"))
        self.names = self.read_names(Bytes(data[names_at:names_at + names_bytes]))

    def chunk(self, data, at):
        kind, committed, first, born, dead = struct.unpack_from("<2I3Q", data, at)
        if not kind or born > self.epoch or 0 < dead <= self.epoch:
            return None
        return kind, first, data[at + HEAD:at + HEAD + committed]

    def define(self, all_of_them):
        while all_of_them:
            tag = all_of_them.byte()
            one = Bytes(all_of_them.take(all_of_them.number()))
            number = one.number()
            if tag == 1:
                self.kinds[number] = one.text()
            elif tag == 2:
                self.modules[number] = (one.text(), one.text())
            elif tag == 3:
                self.lines[number] = (one.text(), one.text(), one.number())
            elif tag == 4:
                self.sites[number] = (one.text(), [(one.number(), one.number()) for _ in range(one.number())])
            elif tag == 5:
                self.threads[number] = one.number()

    @staticmethod
    def read_names(all_of_them):
        texts, frames, names = [""], [None], {}
        while all_of_them:
            tag = all_of_them.byte()
            one = Bytes(all_of_them.take(all_of_them.number()))
            if tag == 6:
                texts.append(one.data.decode(errors="replace"))
            elif tag == 7:
                frames.append(texts[one.number()])
            elif tag == 8:
                site = one.number()
                names[site] = [frames[one.number()] for _ in range(one.number())]
        return names

    def read_events(self, time, data):
        address = size = stream = site = thread = kind = 0
        while data:
            first = data.byte()
            if first & 7 == 5:
                thread = data.number()
                continue
            type_of = TYPES[first & 7]
            time += data.number()
            if first & 8:
                kind = data.number()
            has_address, has_bytes = first & 7 < 3, type_of != "free"
            has_site = has_bytes and type_of != "resized"
            if has_address:
                address = (address + data.difference()) & MASK
            if has_bytes and not first & 32:
                size = data.number()
            if has_site and not first & 16:
                site = data.number()
            if type_of == "copy":
                data.byte()
            weight = data.number() if first & 64 else 256
            if first & 128:
                stream += data.difference()
            turned_back = (address << 4 | address >> 60) & MASK
            yield Event(time, type_of, self.kinds.get(kind), turned_back if has_address else 0,
                        size if has_bytes else 0, site if has_site else 0, self.threads.get(thread), weight)
