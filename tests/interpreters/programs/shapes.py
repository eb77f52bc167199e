"""shapes.py LIBRARY SEED COUNT: allocates in COUNT random shapes of Python stacks and writes, as JSON, how Python
itself saw the stack of each. The code is generated: what SEED says."""
import ctypes
import functools
import json
import random
import sys
import threading

LIBRARY, SEED, COUNT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
released = ctypes.CDLL(LIBRARY)   # without the GIL
held = ctypes.PyDLL(LIBRARY)      # with it
CALLBACK = ctypes.CFUNCTYPE(None)
seen = {}


def stack():
    """Innermost first, the caller's; names as CPython has them: qualified ones from 3.11 on."""
    frame, frames = sys._getframe(1), []
    while frame:
        code = frame.f_code
        frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return frames


# Each takes the body's lines, which call `next_one()`, to a function `shape(next_one)` that calls it in some way.
SHAPES = {
    "function": "def shape(next_one):\n    x = 1\n    return next_one()\n",
    "many_lines": "def shape(next_one):\n" + "".join(f"    x{i} = {i}\n" for i in range(300)) + "    next_one()\n",
    "long_call": "def shape(next_one):\n    return (\n        [1,\n         2],\n        next_one(\n"
                 "        ),\n        3)\n",
    "lambda_": "shape = lambda next_one: (lambda: next_one())()\n",
    "nested": "def shape(next_one):\n    def inner():\n        next_one()\n    return inner()\n",
    "method": "class Model:\n    def forward(self, next_one):\n        return next_one()\n"
              "def shape(next_one):\n    Model().forward(next_one)\n",
    "static": "class Model:\n    @staticmethod\n    def make(next_one):\n        return next_one()\n"
              "    @classmethod\n    def build(cls, next_one):\n        return cls.make(next_one)\n"
              "shape = Model.build\n",
    "initialiser": "class Model:\n    def __init__(self, next_one):\n        next_one()\n"
                   "def shape(next_one):\n    Model(next_one)\n",
    "property_": "class Model:\n    @property\n    def value(self):\n        return self.next_one()\n"
                 "def shape(next_one):\n    model = Model()\n    model.next_one = next_one\n"
                 "    return model.value\n",
    "comprehension": "def shape(next_one):\n    return [next_one() for _ in range(1)]\n",
    "set_comprehension": "def shape(next_one):\n    return {str(next_one()): 1\n            for _ in range(1)}\n",
    "generator": "def shape(next_one):\n    def items():\n        yield 1\n        yield next_one()\n"
                 "    for _ in items():\n        pass\n",
    "generator_expression": "def shape(next_one):\n    return list(next_one()\n"
                            "                for _ in range(1))\n",
    "yield_from": "def shape(next_one):\n    def inner():\n        next_one()\n        yield 1\n"
                  "    def outer():\n        yield 0\n        yield from inner()\n    return sum(outer())\n",
    "send": "def shape(next_one):\n    def taking():\n        while True:\n            function = yield\n"
            "            if function:\n                function()\n    g = taking()\n    next(g)\n"
            "    g.send(next_one)\n",
    "throw": "def shape(next_one):\n    def taking():\n        try:\n            yield\n        except KeyError:\n"
             "            yield next_one()\n    g = taking()\n    next(g)\n    g.throw(KeyError('x'))\n",
    "coroutine": "def shape(next_one):\n    async def inner():\n        return next_one()\n"
                 "    async def outer():\n"
                 "        x = 1\n        return await inner()\n    try:\n        outer().send(None)\n"
                 "    except StopIteration:\n        pass\n",
    "event_loop": "import asyncio\ndef shape(next_one):\n    async def work():\n        await asyncio.sleep(0)\n"
                  "        next_one()\n    if asyncio._get_running_loop():\n        return next_one()\n"
                  "    loop = asyncio.new_event_loop()\n"
                  "    loop.run_until_complete(work())\n    loop.close()\n",
    "async_generator": "def shape(next_one):\n    async def items():\n        yield next_one()\n"
                       "    async def outer():\n"
                       "        async for _ in items():\n            pass\n    try:\n        outer().send(None)\n"
                       "    except StopIteration:\n        pass\n",
    "key": "def shape(next_one):\n    return sorted([1], key=lambda _: next_one() or 0)\n",
    "map_": "def shape(next_one):\n    return list(map(lambda _: next_one(), [1]))\n",
    "reduce_": "import functools\ndef shape(next_one):\n    functools.reduce(lambda a, b: next_one(), [1, 2])\n",
    "partial": "import functools\ndef call(function, x=0):\n    return function()\n"
               "def shape(next_one):\n    functools.partial(call, next_one, x=1)()\n",
    "decorated": "import functools\ndef twice(function):\n    @functools.wraps(function)\n"
                 "    def wrapper(*a, **k):\n"
                 "        return function(*a, **k)\n    return wrapper\n@twice\n@twice\ndef shape(next_one):\n"
                 "    return next_one()\n",
    "cached": "import functools\ndef shape(next_one):\n    @functools.lru_cache(maxsize=None)\n    def value():\n"
              "        return next_one()\n    return value()\n",
    "exception": "def shape(next_one):\n    try:\n        raise KeyError('no')\n    except KeyError:\n"
                 "        next_one()\n",
    "finally_": "def shape(next_one):\n    try:\n        try:\n            1 / 0\n        finally:\n"
                "            next_one()\n    except ZeroDivisionError:\n        pass\n",
    "with_": "class Entered:\n    def __init__(self, f):\n        self.f = f\n    def __enter__(self):\n"
             "        pass\n"
             "    def __exit__(self, *a):\n        self.f()\ndef shape(next_one):\n    with Entered(next_one):\n"
             "        x = 1\n",
    "context": "import contextlib\ndef shape(next_one):\n    @contextlib.contextmanager\n    def managed():\n"
               "        next_one()\n        yield\n    with managed():\n        pass\n",
    "deleted": "class Late:\n    def __del__(self):\n        self.f()\ndef shape(next_one):\n    late = Late()\n"
               "    late.f = next_one\n    del late\n",
    "operator_": "class Number:\n    def __add__(self, other):\n        return self.f()\ndef shape(next_one):\n"
                 "    n = Number()\n    n.f = next_one\n    return n + 1\n",
    "attribute": "class Any:\n    def __getattr__(self, name):\n"
                 "        return object.__getattribute__(self, 'g')()\n"
                 "def shape(next_one):\n    a = Any()\n    a.g = next_one\n    return a.whatever\n",
    "executed": "def shape(next_one):\n    exec('x = 1\\nnext_one()', {'next_one': next_one})\n",
    "evaluated": "def shape(next_one):\n    return eval('(1,\\n next_one())', {'next_one': next_one})\n",
    "class_body": "def shape(next_one):\n    class Body:\n        x = 1\n        y = next_one()\n",
    "recursive": "def shape(next_one, depth=4):\n    if depth:\n        return shape(next_one, depth - 1)\n"
                 "    return next_one()\n",
    "thread": "import threading\ndef shape(next_one):\n    t = threading.Thread(target=next_one)\n    t.start()\n"
              "    t.join()\n",
    "pool": "from concurrent.futures import ThreadPoolExecutor\ndef shape(next_one):\n"
            "    with ThreadPoolExecutor(1) as pool:\n        pool.submit(next_one).result()\n",
    "c_callback": "def shape(next_one):\n    released.call_back(CALLBACK(lambda: next_one()))\n",
    "c_callback_held": "def shape(next_one):\n    held.call_back(CALLBACK(lambda: next_one()))\n",
    "foreign_thread": "def shape(next_one):\n    released.call_in_thread(CALLBACK(lambda: next_one()))\n",
    "unicode_": "def grüße_数据(next_one):\n    return next_one()\nshape = grüße_数据\n",
    "one_line": "shape = lambda f: [f() for _ in (1,)]; y = 2\n",
    "backwards": "def shape(next_one):\n    for i in range(2):\n        if i:\n            next_one()\n"
                 "        x = (i +\n"
                 "             1)\n",
    "default": "def shape(next_one):\n    def inner(x=next_one()):\n        return x\n    return inner\n",
    "star": "def shape(next_one):\n    f = lambda *a, **k: k['n']()\n    return f(*[1, 2], **{'n': next_one})\n",
    "import_time": "import types\ndef shape(next_one):\n    m = types.ModuleType('made')\n    m.f = next_one\n"
                   "    exec(compile('f()\\n', 'made_module.py', 'exec'), m.__dict__)\n",
    "traced": "import sys\ndef shape(next_one):\n    def tracer(frame, event, argument):\n"
              "        sys.settrace(None)\n        next_one()\n    def inner():\n        x = 1\n"
              "    sys.settrace(tracer)\n    inner()\n    sys.settrace(None)\n",
    "slots": "class Seq:\n    def __len__(self):\n        return 1\n    def __getitem__(self, i):\n        if i:\n"
             "            raise IndexError\n        return self.f()\ndef shape(next_one):\n    s = Seq()\n"
             "    s.f = next_one\n"
             "    return list(s)\n",
}


def made(name, random_lines):
    """Other lines every time; file names that CPython stores in one, two and four bytes a character."""
    source = "\n" * random_lines + SHAPES[name]
    suffix = random.choice(["", "é", "数", "\U0001f600"])
    scope = {"released": released, "held": held, "CALLBACK": CALLBACK}
    exec(compile(source, f"<{name}{suffix}-{random_lines}>", "exec"), scope)
    return scope["shape"]


def allocation(number):
    """A function of its own, so that no two stacks are the same."""
    # One line, so that both see the same one.
    source = "\n" * random.randrange(400) + "def allocate():\n    seen[number] = (library.probe(number), stack())[1]\n"
    scope = {"seen": seen, "stack": stack, "number": number, "library": random.choice((released, held))}
    exec(compile(source, f"<allocation {number}>", "exec"), scope)
    return scope["allocate"]


random.seed(SEED)
names = list(SHAPES)
for number in range(COUNT):
    # Each shape leads once; further ones are drawn.
    chain = [names[number % len(names)]] + random.choices(names, k=random.randrange(4))
    call = allocation(number)
    for name in chain:
        call = functools.partial(made(name, random.randrange(40)), call)
    if number % 7 == 3:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    else:
        call()
json.dump(seen, sys.stdout)
