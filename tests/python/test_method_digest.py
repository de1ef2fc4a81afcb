"""What tells that the code of a method in Python has changed (python/evenkeel_moe/_source.py). Needs no program."""

import functools
import hashlib

import pytest

import evenkeel_moe as ek
from evenkeel_moe._served import source_of
from evenkeel_moe._source import sha256_of_source
from package import python


def test_a_relative_import_is_of_the_modules_own_folder(tmp_path):
    package, own = tmp_path / "package", tmp_path / "own.py"
    (package / "deep").mkdir(parents=True)
    (tmp_path / "core.py").write_text("X = 0\n")  # beside the method, and not what ".core" is
    own.write_text("from package import X\n")
    (package / "__init__.py").write_text("from .core import X\n")
    (package / "core.py").write_text("from . import other\nfrom .deep.part import X\n")
    (package / "deep/__init__.py").write_text("")
    (package / "deep/part.py").write_text("from ..last import X\nfrom ...far import X\n")
    for name in ("package/other.py", "package/last.py", "far.py"):
        (tmp_path / name).write_text("X = 1\n")
    files = ["own.py", "package/__init__.py", "package/core.py", "package/other.py", "package/deep/__init__.py", "package/deep/part.py",
             "package/last.py", "far.py"]
    for name in files:
        before, text = sha256_of_source(own), (tmp_path / name).read_text()
        (tmp_path / name).write_text(text + "# changed\n")
        assert sha256_of_source(own) != before, name
        (tmp_path / name).write_text(text)
        assert sha256_of_source(own) == before
    (tmp_path / "core.py").write_text("X = 2\n")
    assert sha256_of_source(own) == before


def test_the_digest_without_relative_imports_is_over_names_and_digests(tmp_path):
    own, helper = tmp_path / "own.py", tmp_path / "helper.py"
    own.write_text("import helper\n")
    helper.write_text("X = 1\n")
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (own, helper)]
    assert sha256_of_source(own) == hashlib.sha256(f"{digests[0]}\nhelper.py {digests[1]}".encode()).hexdigest()
    inner = tmp_path / "package/methods.py"
    inner.parent.mkdir()
    inner.write_text("from ..helper import X\n")
    digests[0] = hashlib.sha256(inner.read_bytes()).hexdigest()
    assert sha256_of_source(inner) == hashlib.sha256(f"{digests[0]}\n../helper.py {digests[1]}".encode()).hexdigest()


TYPED = """
class Mixin:
    def shared(self): return 20
class Base(ek.Method):
    def extra_loss(self, step): return 21
    @functools.lru_cache(maxsize=4)
    def table(self): return 22
    every = classmethod(functools.lru_cache(lambda cls: 23))
class Own(Mixin, Base):
    @functools.lru_cache(maxsize=None)
    def root(self): return 24
    one = staticmethod(functools.lru_cache(lambda: 25))
    size = property(functools.lru_cache(lambda self: 26))
    @functools.cached_property
    def kept(self): return 27
    def guarded(self, uploads):
        try:
            uploads.check()
        except ValueError: return 28
        else: uploads.use()
    def aggregate(self, server, state, round, uploads, scale=2):
        names = [g.mean() for g in sorted(uploads, key=lambda one: one.weight) if g in {'a', 'b', 'c'}]
        return names, lambda: (scale, 0.5)
    def upload(self): return 1
    total = property(lambda self: 3)
    part = staticmethod(lambda self: 4)
    @functools.wraps(upload)
    def decorated(*arguments): return 6
"""


def digest_of_text(text):
    """The digest of a class whose source Python does not keep, as of `python - < script`."""
    names = {"__name__": "no_module_of_a_file", "ek": ek, "functools": functools}
    exec(text, names)
    return source_of(names["Own"])[1]


@pytest.mark.parametrize("old, new", [
    (".mean()", ".max()"), ("one.weight", "one.budget"), ("'c'", "'d'"), ("0.5", "0.25"), ("scale=2", "scale=3"),
    ("upload(self)", "upload(self, download)"), ("uploads, scale", "uploads, *, scale"), ("*arguments", "**arguments"), ("return 1\n", "return 2\n"),
    ("self: 3", "self: 5"), ("self: 4", "self: 5"), ("return 6", "return 7"), ("(Mixin, Base)", "(Base)"), ("(Mixin, Base)", "(Base, Mixin)"),
    *((str(number), str(number + 10)) for number in range(20, 29)),
    ("        except ValueError: return 28\n        else: uploads.use()\n", "            uploads.use()\n        except ValueError: return 28\n")])
def test_the_digest_of_a_class_without_a_text_is_of_its_code_and_that_of_its_bases(old, new):
    assert TYPED.count(old) == 1 and digest_of_text(TYPED) == digest_of_text(f"\n\n{TYPED}") != digest_of_text(TYPED.replace(old, new))


def test_the_digest_of_a_class_without_functions_is_of_nothing():
    """The functions of ek.Method are those of the package, whose version the program compares."""
    for text in ("class Own(ek.Method): pass", "class Own(ek.Method):\n    calls = {}\n    step: float = 0.5",
                 "class Base(ek.Method): pass\nclass Own(Base): pass"):
        assert digest_of_text(text) == hashlib.sha256(b"").hexdigest()


def test_the_digest_of_a_class_without_a_text_is_that_of_other_processes():
    code = "import test_method_digest as one; print(one.digest_of_text(one.TYPED))"
    assert python(code).communicate(timeout=600)[0].strip() == digest_of_text(TYPED)
