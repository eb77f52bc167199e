"""A real program for bench/host.py: objects, dictionaries, lists, strings, regular expressions, JSON. Run with
PYTHONMALLOC=malloc, so that every object comes from malloc. Prints a digest of what it computed."""
import hashlib
import json
import random
import re

random.seed(1)
digest = hashlib.sha256()


class Account:
    def __init__(self, number, owner):
        self.number, self.owner, self.history = number, owner, []

    def book(self, amount, text):
        self.history.append({"amount": amount, "text": text, "balance": self.balance() + amount})

    def balance(self):
        return self.history[-1]["balance"] if self.history else 0


def objects():
    accounts = [Account(number, f"owner-{number % 97}") for number in range(2000)]
    for step in range(60_000):
        random.choice(accounts).book(random.randrange(-500, 600), f"booking {step} of {step % 31}")
    by_owner = {}
    for account in accounts:
        by_owner.setdefault(account.owner, []).append(account.balance())
    return sorted((owner, sum(balances)) for owner, balances in by_owner.items())


def documents():
    tree = {f"key{n}": {"list": list(range(n % 40)), "text": "x" * (n % 200), "float": n / 7,
                        "nested": [{"a": n, "b": str(n)}, None, True]} for n in range(6000)}
    for _ in range(3):
        tree = json.loads(json.dumps(tree))
    return len(json.dumps(tree, indent=1))


def text():
    words = ["".join(random.choices("abcdefghij", k=random.randrange(2, 14))) for _ in range(3000)]
    page = " ".join(random.choices(words, k=60_000))
    found = [match.groups() for match in re.finditer(r"(\w+?)(ab|cd|ef)(\w*)", page)]
    replaced = re.sub(r"[aeiou]+", lambda match: match.group().upper(), page)
    counts = {}
    for word in replaced.split():
        counts[word] = counts.get(word, 0) + 1
    return len(found), sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:50]


def containers():
    pairs = [(n * 7919 % 10007, str(n)) for n in range(80_000)]
    groups = {}
    for key, value in pairs:
        groups.setdefault(key, set()).add(value)
    merged = [frozenset(group) for group in groups.values()]
    return len(set(merged)), sum(len(tuple(sorted(group))) for group in merged)


for part in (objects, documents, text, containers):
    digest.update(repr((part.__name__, part(), part())).encode())
print(digest.hexdigest())
