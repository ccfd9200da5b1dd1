/* Safetensors: what the writer writes, and what the reader refuses. */
#include "test.h"

#include "ares/io.h"

/*
 * A file with this header and data_bytes bytes of data (1, 2, 3 ...). claimed: the length of the
 * header that the file states; -1: the true one.
 */
static const char *file_of(const char *name, const char *header, int64_t data_bytes,
                           int64_t claimed)
{
    ares_str s = { 0 };
    uint64_t length = claimed < 0 ? strlen(header) : (uint64_t)claimed;
    for (int i = 0; i < 8; i++) ares_str_add_char(&s, (char)(length >> (8 * i)));
    ares_str_add_z(&s, header);
    for (int64_t i = 0; i < data_bytes; i++) ares_str_add_char(&s, (char)(i + 1));
    const char *path = test_file(name);
    CHECK_OK(ares_file_write(path, s.data, s.len));
    ares_str_fini(&s);
    return path;
}

#define ENTRY(name, dtype, shape, begin, end)                                                      \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

static void check_refused(const char *header, int64_t data_bytes, int64_t claimed,
                          const char *message)
{
    ares_safetensors *s;
    CHECK_FAIL(ares_safetensors_open(file_of("x.safetensors", header, data_bytes, claimed), &s),
               ARES_EFORMAT, message);
    CHECK_CONTAINS(ares_error_message(), "x.safetensors");
    CHECK(s == NULL);
}

TEST(tensors_come_back_as_they_were_written)
{
    ares_safetensors_writer *w;
    ares_safetensors *s;
    const char *path = test_file("a.safetensors");
    const float a[6] = { 1, 2, 3, 4, 5, 6 };
    const uint16_t b[2] = { 0x3f80, 0xbf80 };
    REQUIRE_OK(ares_safetensors_create(path, &w));
    ares_safetensors_declare(w, "layer.0.\"w\"", ARES_F32, 2, (const int64_t[]){ 2, 3 });
    ares_safetensors_declare(w, "empty", ARES_F16, 2, (const int64_t[]){ 0, 7 });
    ares_safetensors_declare(w, "b", ARES_BF16, 1, (const int64_t[]){ 2 });
    ares_safetensors_declare(w, "NaN", ARES_F32, 0, NULL);
    for (size_t i = 0; i < sizeof a; i += 5)
        CHECK_OK(ares_safetensors_write(w, (const char *)a + i, ARES_MIN((size_t)5, sizeof a - i)));
    CHECK_OK(ares_safetensors_write(w, b, sizeof b));
    CHECK_OK(ares_safetensors_write(w, a, 4));
    REQUIRE_OK(ares_safetensors_finish(w));

    REQUIRE_OK(ares_safetensors_open(path, &s));
    CHECK_EQ(ares_safetensors_count(s), 4);
    ares_str bytes = { 0 };
    CHECK_OK(ares_file_read(path, &bytes));
    CHECK(ares_view_find(ares_str_view(&bytes),
                         ARES_VIEW("{\"__metadata__\":{\"format\":\"pt\"},\"layer.0.\\\"w\\\"\":{"
                                   "\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"),
                         0) == 8);
    ares_str_fini(&bytes);
    CHECK(ares_safetensors_find(s, "layer.0") == NULL);
    const ares_tensor_info *t = ares_safetensors_find(s, "layer.0.\"w\"");
    REQUIRE(t != NULL);
    CHECK_STR(t->dtype_name, "F32");
    CHECK(t->is_float && t->dtype == ARES_F32 && t->rank == 2 && t->shape[0] == 2 &&
          t->shape[1] == 3 && t->count == 6);
    CHECK_MEM(t->data, a, sizeof a);
    CHECK_EQ((uintptr_t)t->data % 8, 0);
    t = ares_safetensors_find(s, "empty");
    REQUIRE(t != NULL);
    CHECK(t->count == 0 && t->bytes == 0 && t->shape[1] == 7 && t->dtype == ARES_F16);
    t = ares_safetensors_find(s, "b");
    REQUIRE(t != NULL && t->bytes == 4);
    CHECK_MEM(t->data, b, sizeof b);
    t = ares_safetensors_find(s, "NaN");
    CHECK(t && t->rank == 0 && t->count == 1 && t->bytes == 4);
    CHECK_STR(ares_safetensors_at(s, 2)->name, "b");
    ares_safetensors_close(s);
}

TEST(a_writer_tells_of_bytes_missing_and_bytes_too_many)
{
    ares_safetensors_writer *w;
    ares_safetensors *s;
    const char *path = test_file("a.safetensors");
    char bytes[16] = { 0 };
    for (size_t n = 0; n <= 12; n += 4) {
        REQUIRE_OK(ares_safetensors_create(path, &w));
        ares_safetensors_declare(w, "a", ARES_F32, 1, (const int64_t[]){ 2 });
        if (n) CHECK_OK(ares_safetensors_write(w, bytes, n));
        if (n == 8) CHECK_OK(ares_safetensors_finish(w));
        else
            CHECK_FAIL(ares_safetensors_finish(w), ARES_ESTATE, "of 8 declared bytes were written");
        /* and the reader agrees */
        if (n != 8) CHECK_FAIL(ares_safetensors_open(path, &s), ARES_EFORMAT, "a.safetensors");
    }
    REQUIRE_OK(ares_safetensors_create(path, &w)); /* no tensors at all: still a file */
    CHECK_OK(ares_safetensors_finish(w));
    REQUIRE_OK(ares_safetensors_open(path, &s));
    CHECK_EQ(ares_safetensors_count(s), 0);
    ares_safetensors_close(s);
    CHECK_FAIL(ares_safetensors_create(test_file("none/a"), &w), ARES_EIO, "No such file");
}

TEST(lengths_of_header_and_file_must_agree)
{
    const char *good = "{" ENTRY("a", "F32", "[2]", 0, 8) "}";
    ares_safetensors *s;
    REQUIRE_OK(ares_safetensors_open(file_of("ok.safetensors", good, 8, -1), &s));
    ares_safetensors_close(s);
    CHECK_OK(ares_file_write(test_file("x.safetensors"), "\0\0\0", 3));
    CHECK_FAIL(ares_safetensors_open(test_file("x.safetensors"), &s), ARES_EFORMAT,
               "3 bytes are too few");
    CHECK_OK(ares_file_write(test_file("x.safetensors"), "", 0));
    CHECK_FAIL(ares_safetensors_open(test_file("x.safetensors"), &s), ARES_EFORMAT,
               "0 bytes are too few");
    check_refused(good, 8, 1000, "header of 1000 bytes does not fit");
    check_refused(good, 8, INT64_MAX, "does not fit");
    check_refused(good, 8, 200 * 1000 * 1000, "does not fit");
    check_refused(good, 7, -1, "claims bytes 0 to 8 of 7; the file is truncated");
    check_refused(good, 9, -1, "1 bytes after the last tensor");
    check_refused(good, 8, 5, "not JSON");
    check_refused(good, 0, 0, "not JSON");
    check_refused("[1]", 0, -1, "header is not a JSON object");
    check_refused("{}", 4, -1, "4 bytes after the last tensor");
}

TEST(tensors_neither_overlap_nor_leave_holes)
{
    check_refused("{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[1]", 4, 8) "}", 8, -1,
                  "tensor 'b' overlaps another");
    check_refused("{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[2]", 0, 8) "}", 8, -1,
                  "overlaps another");
    check_refused("{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("b", "F32", "[1]", 8, 12) "}", 12,
                  -1, "4 unused bytes before tensor 'b'");
    check_refused("{" ENTRY("a", "F32", "[1]", 4, 8) "}", 8, -1,
                  "4 unused bytes before tensor 'a'");
    check_refused("{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[0]", 4, 4) "}", 8, -1,
                  "overlaps another");
    ares_safetensors *s; /* out of order, with empty tensors between */
    REQUIRE_OK(ares_safetensors_open(
        file_of("ok.safetensors",
                "{" ENTRY("c", "U8", "[0,3]", 8, 8) "," ENTRY("b", "F32", "[1]", 4, 8) "," ENTRY(
                    "z", "I64", "[0]", 0, 0) "," ENTRY("a", "I32", "[1]", 0, 4) "}",
                8, -1),
        &s));
    CHECK_STR(ares_safetensors_at(s, 0)->name, "c");
    CHECK_EQ(*(const char *)ares_safetensors_find(s, "b")->data, 5);
    CHECK(!ares_safetensors_find(s, "a")->is_float);
    ares_safetensors_close(s);
}

TEST(entries_that_make_no_sense_are_named)
{
    check_refused("{" ENTRY("a", "F33", "[1]", 0, 4) "}", 4, -1, "tensor 'a': unknown dtype 'F33'");
    check_refused("{" ENTRY("a", "f32", "[1]", 0, 4) "}", 4, -1, "unknown dtype 'f32'");
    check_refused("{" ENTRY("a", "F32", "[2]", 0, 4) "}", 4, -1,
                  "F32 with 2 elements does not fill its 4 bytes");
    check_refused("{" ENTRY("a", "F32", "[-1]", 0, 4) "}", 4, -1, "dimension 0 is not a size");
    check_refused("{" ENTRY("a", "F32", "[1.5]", 0, 4) "}", 4, -1, "dimension 0 is not a size");
    check_refused("{" ENTRY("a", "F32", "[1,4294967296,4294967296]", 0, 4) "}", 4, -1,
                  "dimension 2 is not a size");
    /* times 4 is 4 modulo 2^64 */
    check_refused("{" ENTRY("a", "F32", "[4611686018427387905]", 0, 4) "}", 4, -1, "does not fill");
    check_refused("{" ENTRY("a", "F32", "[99999999999999999999]", 0, 4) "}", 4, -1,
                  "dimension 0 is not a size");
    check_refused("{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, -1, "9 dimensions");
    check_refused("{" ENTRY("a", "F32", "[1]", 4, 0) "}", 4, -1, "claims bytes 4 to 0");
    check_refused("{" ENTRY("a", "F32", "[1]", -4, 0) "}", 4, -1,
                  "data_offsets are not byte positions");
    check_refused("{" ENTRY("a", "F32", "[1]", 0, 1e1) "}", 4, -1,
                  "data_offsets are not byte positions");
    check_refused("{" ENTRY("a", "F32", "NaN", 0, 4) "}", 4, -1, "not JSON");
    check_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, -1, "tensor 'a': entry needs");
    check_refused("{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, -1,
                  "tensor 'a': entry needs");
    check_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, -1,
                  "tensor 'a': entry needs");
    check_refused("{\"a\":[]}", 4, -1, "its entry is not an object");
    check_refused("{\"a\\u0000b\":{}}", 4, -1, "a tensor's name holds NUL");
}

TEST(metadata_may_be_anything)
{
    ares_safetensors *s;
    REQUIRE_OK(ares_safetensors_open(
        file_of("ok.safetensors", "{\"__metadata__\":{\"a\":\"x\",\"b\":3}}", 0, -1), &s));
    CHECK_EQ(ares_safetensors_count(s), 0);
    ares_safetensors_close(s);
    REQUIRE_OK(ares_safetensors_open(file_of("ok.safetensors", "{\"__metadata__\":7}", 0, -1), &s));
    ares_safetensors_close(s);
}

/* Every single bit of a small file turned over: refused with a message, or read without harm. */
TEST(no_flipped_bit_and_no_cut_crashes_the_reader)
{
    ares_str good = { 0 };
    ares_safetensors *s;
    const char *path = test_file("x.safetensors");
    REQUIRE_OK(ares_file_read(
        file_of("ok.safetensors",
                "{\"__metadata__\":{\"f\":\"pt\"}," ENTRY("a", "F32", "[2,1]", 0,
                                                          8) "," ENTRY("b", "I8", "[3]", 8, 11) "}",
                11, -1),
        &good));
    int opened = 0;
    for (size_t bit = 0; bit < good.len * 8; bit++) {
        good.data[bit / 8] ^= (char)(1 << bit % 8);
        CHECK_OK(ares_file_write(path, good.data, good.len));
        good.data[bit / 8] ^= (char)(1 << bit % 8);
        if (ares_safetensors_open(path, &s) != ARES_OK) {
            CHECK(s == NULL && *ares_error_message());
            continue;
        }
        opened++;
        unsigned sum = 0;
        for (int64_t i = 0; i < ares_safetensors_count(s); i++)
            for (int64_t k = 0; k < ares_safetensors_at(s, i)->bytes; k++)
                sum += ((const unsigned char *)ares_safetensors_at(s, i)->data)[k];
        CHECK(sum <= 255 * 11);
        ares_safetensors_close(s);
    }
    /* data, names and metadata may change; structure may not */
    CHECK(opened >= 11 * 8 && opened < (int)good.len * 4);
    for (size_t n = 0; n < good.len; n++) {
        CHECK_OK(ares_file_write(path, good.data, n));
        CHECK_FAIL(ares_safetensors_open(path, &s), ARES_EFORMAT, "x.safetensors");
    }
    ares_str_fini(&good);
}

static void write_text(const char *name, const char *text)
{
    CHECK_OK(ares_file_write(test_file(name), text, strlen(text)));
}

TEST(a_directory_is_its_index_or_its_model_or_its_only_file)
{
    ares_safetensors *s;
    CHECK_FAIL(ares_safetensors_open(test_dir(), &s), ARES_EFORMAT, "no model.safetensors here");
    REQUIRE_OK(ares_file_write(test_file("pytorch_model.bin"), "", 0));
    CHECK_FAIL(ares_safetensors_open(test_dir(), &s), ARES_EFORMAT, "PyTorch's own format");
    REQUIRE_OK(ares_file_write(test_file("q4.gguf"), "", 0));
    CHECK_FAIL(ares_safetensors_open(test_dir(), &s), ARES_EFORMAT, "GGUF is not read");
    CHECK_FAIL(ares_safetensors_open(test_file("none.safetensors"), &s), ARES_EIO, "No such file");
    file_of("adapter.safetensors", "{" ENTRY("x", "U8", "[1]", 0, 1) "}", 1, -1);
    REQUIRE_OK(ares_safetensors_open(test_dir(), &s));
    CHECK(ares_safetensors_find(s, "x") != NULL);
    ares_safetensors_close(s);
    file_of("other.safetensors", "{" ENTRY("y", "U8", "[1]", 0, 1) "}", 1, -1);
    CHECK_FAIL(ares_safetensors_open(test_dir(), &s), ARES_EFORMAT,
               "several *.safetensors and no model.safetensors.index.json");
    file_of("model.safetensors", "{" ENTRY("z", "U8", "[1]", 0, 1) "}", 1, -1);
    REQUIRE_OK(ares_safetensors_open(test_dir(), &s));
    CHECK(ares_safetensors_count(s) == 1 && ares_safetensors_find(s, "z"));
    ares_safetensors_close(s);
    write_text("model.safetensors.index.json",
               "{\"weight_map\":{\"x\":\"adapter.safetensors\",\"y\":\"other.safetensors\"}}");
    REQUIRE_OK(ares_safetensors_open(test_dir(), &s));
    CHECK(ares_safetensors_count(s) == 2 && ares_safetensors_find(s, "x") &&
          ares_safetensors_find(s, "y"));
    CHECK_CONTAINS(ares_safetensors_find(s, "y")->file, "other.safetensors");
    ares_safetensors_close(s);
}

static void check_index_refused(const char *index, int code, const char *message)
{
    ares_safetensors *s;
    write_text("model.safetensors.index.json", index);
    CHECK_FAIL(ares_safetensors_open(test_dir(), &s), code, message);
    CHECK_CONTAINS(ares_error_message(), "model.safetensors.index.json");
    CHECK(s == NULL);
}

TEST(an_index_that_promises_too_much_is_refused)
{
    file_of("1.safetensors", "{" ENTRY("x", "U8", "[1]", 0, 1) "}", 1, -1);
    file_of("2.safetensors", "{" ENTRY("y", "U8", "[1]", 0, 1) "}", 1, -1);
    check_index_refused("{\"weight_map\":{\"x\":\"1.safetensors\",\"y\":\"3.safetensors\"}}",
                        ARES_EIO, "names the shard '3.safetensors', which is missing");
    check_index_refused("{\"weight_map\":{\"x\":\"1.safetensors\",\"y\":\"1.safetensors\"}}",
                        ARES_EFORMAT, "tensor 'y' is in none of the shards");
    check_index_refused("{\"weight_map\":{\"x\":\"2.safetensors\",\"y\":\"1.safetensors\"}}",
                        ARES_EFORMAT, "1.safetensors, not in '2.safetensors'");
    check_index_refused("{\"weight_map\":{\"x\":\"../1.safetensors\"}}", ARES_EFORMAT,
                        "tensor 'x' is in no file of this directory");
    check_index_refused("{\"weight_map\":{\"x\":\"\"}}", ARES_EIO, "which is missing");
    check_index_refused("{\"weight_map\":{\"x\":\"..\"}}", ARES_EIO, "which is missing");
    check_index_refused("{\"weight_map\":{\"x\":1}}", ARES_EFORMAT,
                        "is in no file of this directory");
    check_index_refused("{\"weight_map\":[]}", ARES_EFORMAT, "no object 'weight_map'");
    check_index_refused("{}", ARES_EFORMAT, "no object 'weight_map'");
    check_index_refused("{\"weight_map\":", ARES_EFORMAT, "not JSON");
}

TEST(a_tensor_in_two_shards_is_refused)
{
    ares_safetensors *s;
    file_of("1.safetensors", "{" ENTRY("x", "U8", "[1]", 0, 1) "}", 1, -1);
    file_of("2.safetensors",
            "{" ENTRY("x", "U8", "[1]", 0, 1) "," ENTRY("y", "U8", "[1]", 1, 2) "}", 2, -1);
    write_text("model.safetensors.index.json",
               "{\"weight_map\":{\"x\":\"1.safetensors\",\"y\":\"2.safetensors\"}}");
    CHECK_FAIL(ares_safetensors_open(test_dir(), &s), ARES_EFORMAT,
               "2.safetensors: tensor 'x' appears twice");
}
