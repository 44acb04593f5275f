"""A coverage-guided fuzzer for what reads answers. Run by hand; its findings become tests in
`tests/unit/test_hostile_answers.py`, whose properties it shares.

atheris needs an environment of its own, which borrows the project's packages:

    python -m venv /tmp/fuzz && /tmp/fuzz/bin/pip install atheris
    PYTHONPATH=.:tests:$(python -c 'import site; print(site.getsitepackages()[0])') \\
        /tmp/fuzz/bin/python tests/fuzz/fuzz_answer.py -max_total_time=600 -max_len=4096 \\
        -dict=tests/fuzz/answer.dict CORPUS

CORPUS is a folder, empty at first, which keeps what reached new code. The first failure ends the
run, and libFuzzer leaves the input beside it as `crash-…`; give that file in place of CORPUS to see
it again.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["subtext", "json"]):
    from support.hostile_answers import FRAGMENTS, check_answer

_RAW, _TAIL = 0, 1


def text_of(data: bytes) -> str:
    """Bytes as text: as they are, or each as a fragment of the grammar."""
    kind, rest = data[:1], data[1:]
    if not kind or kind[0] % 2 == _RAW:
        return rest.decode("utf-8", "surrogateescape")
    parts = []
    for position, byte in enumerate(rest):
        if byte < len(FRAGMENTS):
            parts.append(FRAGMENTS[byte])
        elif byte == 255:
            return "".join(parts) + rest[position + _TAIL :].decode("utf-8", "surrogateescape")
        else:
            parts.append(chr(byte))
    return "".join(parts)


def one_input(data: bytes) -> None:
    """What libFuzzer calls. An exception is a finding."""
    check_answer(text_of(data))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
