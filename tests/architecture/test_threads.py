"""The tables of threads and locks in docs/threads.md name those of the code, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache

from tests.architecture.sources import PACKAGE, trees

PAGE = PACKAGE.parent / "docs" / "threads.md"

NAMED_BY = {"Thread": (99, "name"), "ThreadPoolExecutor": (1, "thread_name_prefix")}
"""What starts threads: the position and the keyword of their name."""

LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}
"""Those of ``threading``: asyncio's belong to one thread."""

Position = tuple[int, str]


class Module:
    """A module's tree, with what names stand for in it."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.texts: dict[str, ast.expr] = {}
        self.imported: dict[str, tuple[str, str]] = {}
        """Where imported names come from: a module of the package, and the name there."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self.texts[ast.unparse(target)] = node.value
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                path = node.module.removeprefix("window_consumer.").replace(".", "/")
                names = [(each.asname or each.name, each.name) for each in node.names]
                self.imported |= {alias: (path, name) for alias, name in names}


def pattern_of(name: ast.expr | None, module: Module, modules: Mapping[str, Module]) -> str | None:
    """Return a thread's name, with ``<>`` for what varies; None for a parameter."""
    if isinstance(name, ast.Constant):
        return str(name.value)
    if isinstance(name, ast.JoinedStr):
        parts = [each.value if isinstance(each, ast.Constant) else "<>" for each in name.values]
        return "".join(map(str, parts))
    if isinstance(name, ast.Name) and name.id in module.texts:
        return pattern_of(module.texts[name.id], module, modules)
    if isinstance(name, ast.Name) and name.id in module.imported:
        path, original = module.imported[name.id]
        return pattern_of(ast.Name(original), modules[path], modules)
    return None


def name_of(call: ast.Call, at: Position) -> ast.expr | None:
    position, keyword = at
    if len(call.args) > position:
        return call.args[position]
    return next((each.value for each in call.keywords if each.arg == keyword), None)


def called(node: ast.AST | None) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def starters(modules: Mapping[str, Module]) -> dict[str, Position]:
    """Return what starts a thread, with classes that start one under a name that they get."""
    found = {**NAMED_BY, "WatchedThread": (1, "name")}
    for module in modules.values():
        for each in ast.walk(module.tree):
            if isinstance(each, ast.ClassDef) and each.name not in found:
                found.update((each.name, at) for at in _names_passed_on(each, found))
    return found


def _names_passed_on(class_: ast.ClassDef, found: Mapping[str, Position]) -> Iterator[Position]:
    for made in class_.body:
        if not isinstance(made, ast.FunctionDef) or made.name != "__init__":
            continue
        parameters = [each.arg for each in made.args.args[1:]]
        for node in ast.walk(made):
            if isinstance(node, ast.Call) and called(node) in found:
                name = name_of(node, found[called(node)])
                if isinstance(name, ast.Name) and name.id in parameters:
                    yield parameters.index(name.id), name.id


def threads(modules: Mapping[str, Module]) -> dict[str, str]:
    """Return the names of the threads that the code starts, with the module of each."""
    known, found = starters(modules), {}
    for path, module in modules.items():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and called(node) in known:
                name = name_of(node, known[called(node)])
                pattern = pattern_of(name, module, modules)
                if pattern is not None:
                    found[pattern] = path
    return found


def unnamed(modules: Mapping[str, Module]) -> list[str]:
    known = starters(modules)
    return [
        f"{path}:{node.lineno}"
        for path, module in modules.items()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and called(node) in known
        and name_of(node, known[called(node)]) is None
    ]


def is_lock(value: ast.expr | None, module: Module) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = ast.unparse(value.func)
    path, name = module.imported.get(name, name.rpartition(".")[::2])
    return path == "threading" and name in LOCKS


def locks(modules: Mapping[str, Module]) -> set[str]:
    """Return the locks of the code, like ``audit/sends._growing``."""
    found = set()
    for path, module in modules.items():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and is_lock(node.value, module):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                name = target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)
                found.add(f"{path}.{name}")
    return found


@cache
def package() -> dict[str, Module]:
    return {path.removesuffix(".py"): Module(tree) for path, tree in trees().items()}


def column(heading: str, number: int) -> list[str]:
    """Return the code words of a column of the table under a heading of the page."""
    _, _, section = PAGE.read_text("utf-8").partition(heading)
    rows = re.findall(r"^\|.*\|$", section.split("\n## ")[0], re.MULTILINE)
    table = [row.split("|")[number] for row in rows]
    return [word for cell in table for word in re.findall(r"`([^`]+)`", cell)]


def test_the_table_of_threads_names_those_of_the_code() -> None:
    started = threads(package())
    listed = {re.sub(r"<[^>]*>", "<>", name) for name in column("## Who owns what", 2)}
    missing = {
        each: path for each, path in started.items() if not any(fits(each, n) for n in listed)
    }
    assert missing == {}, "threads that the table does not list"
    assert {name for name in listed if not any(fits(each, name) for each in started)} == set()


def fits(pattern: str, name: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace("<>", ".+"), name) is not None


def test_each_thread_has_a_name() -> None:
    assert unnamed(package()) == []


def test_the_table_of_locks_names_those_of_the_code() -> None:
    assert set(column("## Locks", 1)) == locks(package())


SOURCE = """
class Loop:
    def __init__(self, size, name):
        self.thread = WatchedThread(self.run, name, print)
        self._lock = threading.Lock()

NAME: Final = "wc-fixed"
Thread(target=print, name=NAME)
Loop(3, f"wc-{worker}-loop")
ThreadPoolExecutor(4)
"""


def test_threads_and_locks_are_found_in_code() -> None:
    modules = {"a/b": Module(ast.parse(SOURCE))}
    assert threads(modules) == {"wc-fixed": "a/b", "wc-<>-loop": "a/b"}
    assert locks(modules) == {"a/b._lock"}
    assert unnamed(modules) == ["a/b:10"]
