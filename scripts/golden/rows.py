"""Writes tests/golden/rows: the same rows as Parquet files of several writers' settings, with
rows.jsonl, what the Parquet files say by pyarrow's own to_pylist; and as compressed JSON lines.

    python scripts/golden/rows.py        (pyarrow 22.0.0)

Null fields are left out of rows.jsonl, as the program leaves them out.
"""

import datetime
import decimal
import gzip
import json
import math
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/rows"
UTC = datetime.timezone.utc
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string()), ("name", pa.string())])


def messages(text):
    return [
        {"role": "system", "content": 'Say "\\boxed{}"\n', "name": None},
        {"role": "user", "content": text, "name": "zoë\x00"},
    ]


ROWS = {
    "prompt": (pa.list_(MESSAGE), [messages("1+1"), messages("2+2"), messages("\u2028\t")]),
    "question": (pa.large_string(), ["1+1", "", "x" * 200]),
    "answer": (pa.string(), ["2", "4", "5"]),
    "data_source": (pa.dictionary(pa.int32(), pa.string()), ["gsm8k", "math", "gsm8k"]),
    "extra_info": (
        pa.struct(
            [
                ("index", pa.int64()),
                ("tags", pa.large_list(pa.string())),
                ("inner", pa.struct([("deep", pa.list_(pa.list_(pa.int32())))])),
            ]
        ),
        [
            {"index": 0, "tags": ["a", None, ""], "inner": {"deep": [[1], [], None, [2, 3]]}},
            {"index": None, "tags": [], "inner": None},
            None,
        ],
    ),
    "map": (pa.map_(pa.string(), pa.float64()), [[("k", 0.1), ("l", None)], [], None]),
    "null": (pa.null(), [None] * 3),
    "bool": (pa.bool_(), [True, False, None]),
    "i8": (pa.int8(), [-128, 127, 0]),
    "u8": (pa.uint8(), [255, 0, None]),
    "i16": (pa.int16(), [-32768, 32767, 0]),
    "u16": (pa.uint16(), [65535, 0, 1]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1, 0]),
    "u32": (pa.uint32(), [2**32 - 1, 0, 1]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "u64": (pa.uint64(), [2**64 - 1, 0, 1]),
    "f16": (pa.float16(), [0.5, -65504.0, 2.0**-24]),
    "f32": (pa.float32(), [0.1, -1.5e30, 0.0]),
    "f64": (pa.float64(), [0.1, 5e-324, None]),
    "binary": (pa.binary(), ["é".encode(), b"", None]),
    "date": (pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None]),
    "time_ms": (
        pa.timestamp("ms"),
        [datetime.datetime(1969, 12, 31, 23, 59, 59, 999000), datetime.datetime(2026, 1, 2), None],
    ),
    "time_us": (
        pa.timestamp("us", tz="UTC"),
        [datetime.datetime(2000, 3, 1, 1, 2, 3, 4, tzinfo=UTC), None, None],
    ),
}


def plain(value, kind):
    """A value of to_pylist as the program writes it."""
    if isinstance(value, dict):
        return {k: plain(v, kind.field(k).type) for k, v in value.items() if v is not None}
    if pa.types.is_map(kind) and value is not None:
        return [{"key": k, **({} if v is None else {"value": v})} for k, v in value]
    if isinstance(value, list):
        return [plain(v, kind.value_type) for v in value]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, datetime.datetime):
        digits = {"ms": "milliseconds", "us": "microseconds"}[kind.unit]
        return value.replace(tzinfo=None).isoformat(timespec=digits) + ("Z" if kind.tz else "")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    table = pa.table({k: pa.array(v, t) for k, (t, v) in ROWS.items()})
    kinds = {f.name: f.type for f in table.schema}
    rows = [
        {k: plain(v, kinds[k]) for k, v in row.items() if v is not None}
        for row in table.to_pylist()
    ]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (OUT / "rows.jsonl").write_text(lines, encoding="utf-8")
    # row groups of two, so that a batch ends where rows go on
    pq.write_table(table, OUT / "snappy.parquet", compression="snappy", row_group_size=2)
    pq.write_table(
        table,
        OUT / "zstd.parquet",
        compression="zstd",
        data_page_version="2.0",
        use_dictionary=False,
        row_group_size=3,
    )
    pq.write_table(table.slice(0, 0), OUT / "empty.parquet")
    odd = {"q": ["a", "b"], "span": pa.array([None, 1], pa.duration("s"))}
    pq.write_table(pa.table(odd), OUT / "odd.parquet")
    texts = ["-0.05", "12345678901234567890123456789012345.67", "0"]
    decimals = [decimal.Decimal(x) for x in texts]
    kinds = {
        "price": pa.array(decimals, pa.decimal128(38, 2)),
        "whole": pa.array([decimal.Decimal(-7), None, decimal.Decimal(0)], pa.decimal128(9, 0)),
        "code": pa.array([b"ab", b"\xff\x00", None], pa.binary(2)),
        "pair": pa.array([[1, 2], [0, 5], [3, 4]], pa.list_(pa.int32(), 2)),
        "view": pa.array(["é", None, "a text of more than twelve bytes"], pa.string_view()),
    }
    pq.write_table(pa.table(kinds), OUT / "kinds.parquet")
    bytes_ = {"q": ["a", "b"], "image": [{"bytes": None}, {"bytes": b"\x89PNG"}]}
    pq.write_table(pa.table(bytes_), OUT / "image.parquet")
    pq.write_table(pa.table({"x": [math.nan, math.inf, 1.5]}), OUT / "nan.parquet")

    data = lines.encode()
    half = len(data) // 2
    pack = lambda part: gzip.compress(part, mtime=0)
    zstd = lambda part: pa.compress(part, codec="zstd", asbytes=True)
    (OUT / "rows.jsonl.gz").write_bytes(pack(data[:half]) + pack(data[half:]))
    # a skippable frame between two others
    skip = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    (OUT / "rows.jsonl.zst").write_bytes(zstd(data[:half]) + skip + zstd(data[half:]))


if __name__ == "__main__":
    main()
