/* Places and positions of pictures in a sequence, and in packed tokens. */
#include <math.h>

#include "../../src/data/internal.h"
#include "ares/data.h"
#include "test.h"

enum { IMAGE = 90, VIDEO = 91 };
static const ares_media_rules qwen2_5 = { .processor = { .patch = 4, .merge = 2, .temporal = 2 },
                                          .image_token = IMAGE,
                                          .video_token = VIDEO,
                                          .tokens_per_second = 2 };
static const ares_medium small = { .grid = { 1, 2, 2 }, .frames = 1 }, /* 1 token */
    wide = { .grid = { 1, 4, 6 }, .frames = 1 },                       /* 2 x 3 */
    clip = {
        .video = true, .grid = { 3, 2, 4 }, .frames = 6, .second_per_grid = 1
    }; /* 3 x 1 x 2 */

static ares_media media_of(const ares_medium *items, int32_t images, int32_t videos)
{
    return (ares_media){ images + videos, images, videos, items, 0 };
}

/* ---------------------------------------------------------------- ids */
TEST(one_token_for_a_picture_becomes_as_many_as_it_has_with_the_ones_offsets)
{
    static const int32_t ids[] = { 1, VIDEO, 2, IMAGE, IMAGE },
                         want[] = { 1,     VIDEO, VIDEO, VIDEO, VIDEO, VIDEO, VIDEO, 2,
                                    IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE };
    static const int64_t offsets[][2] = { { 0, 1 }, { 1, 5 }, { 5, 6 }, { 6, 9 }, { 9, 12 } };
    const ares_medium items[] = { small, wide, clip };
    const ares_media media = media_of(items, 2, 1);
    ares_ids out = { .want_offsets = true }, again = { 0 };
    REQUIRE_OK(media_expand(&qwen2_5, &media, ids, 5, offsets, &out));
    REQUIRE(out.n == ARES_COUNT(want));
    CHECK_MEM(out.ids, want, sizeof want);
    CHECK(out.offsets[1][0] == 1 && out.offsets[6][0] == 1 && out.offsets[6][1] == 5);
    CHECK(out.offsets[8][0] == 6 && out.offsets[9][0] == 9 && out.offsets[14][1] == 12);
    /* ids that have them all stay as they are */
    REQUIRE_OK(media_expand(&qwen2_5, &media, want, ARES_COUNT(want), NULL, &again));
    REQUIRE(again.n == ARES_COUNT(want));
    CHECK_MEM(again.ids, want, sizeof want);
    ares_ids_fini(&out);
    ares_ids_fini(&again);
}

TEST(other_numbers_of_places_are_an_error_with_both)
{
    static const int32_t ids[] = { IMAGE, 1, IMAGE, VIDEO };
    const ares_medium items[] = { wide, clip };
    ares_media media = media_of(items, 1, 1);
    ares_ids out = { 0 };
    CHECK_FAIL(media_expand(&qwen2_5, &media, ids, 4, NULL, &out), ARES_EFORMAT,
               "1 images and 2 places for them in the prompt; put <image>");
    CHECK_FAIL(media_expand(&qwen2_5, &media, ids, 1, NULL, &out), ARES_EFORMAT,
               "1 videos and 0 places for them in the prompt; put <video>");
    media = media_of(items, 0, 0);
    CHECK_FAIL(media_expand(&qwen2_5, &media, ids, 4, NULL, &out), ARES_EFORMAT,
               "0 images and 2 places");
    CHECK_OK(media_expand(&qwen2_5, &media, ids + 1, 1, NULL, &out));
    CHECK(out.n == 1 && out.ids[0] == 1);
    ares_ids_fini(&out);
}

/* ---------------------------------------------------------------- positions */
static void check_positions(const ares_media_rules *r, const ares_media *media, const int32_t *ids,
                            int32_t n, const int32_t *t, const int32_t *h, const int32_t *w,
                            int32_t delta)
{
    ares_arena arena = { 0 };
    ares_row_media s;
    if (CHECK_OK(row_media_of(r, media, ids, n, &arena, &s))) {
        CHECK_EQ(s.n, n);
        CHECK_MEM(s.t, t, (size_t)n * sizeof *t);
        CHECK_MEM(s.h, h, (size_t)n * sizeof *h);
        CHECK_MEM(s.w, w, (size_t)n * sizeof *w);
        CHECK_EQ(s.delta, delta);
        int32_t a[3];
        ares_media_position(&s, n + 5, &a[0], &a[1], &a[2]);
        for (int i = 0; i < 3; i++) CHECK_EQ(a[i], n + 5 + delta);
        ares_media_position(&s, n - 1, &a[0], &a[1], &a[2]);
        CHECK(a[0] == t[n - 1] && a[1] == h[n - 1] && a[2] == w[n - 1]);
        ares_media_position(NULL, 3, &a[0], &a[1], &a[2]);
        CHECK(a[0] == 3 && a[1] == 3 && a[2] == 3);
    }
    ares_arena_fini(&arena);
}

TEST(text_stands_at_its_number_on_all_axes)
{
    static const int32_t ids[] = { 5, 6, 7 }, at[] = { 0, 1, 2 };
    const ares_media none = { 0 };
    check_positions(&qwen2_5, &none, ids, 3, at, at, at, 0);
}

TEST(an_images_tokens_have_its_rows_and_columns_and_text_follows_the_largest)
{
    /* two pictures next to each other, of 6 tokens and of one */
    static const int32_t ids[] = { 1, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, 2, 3 },
                         t[] = { 0, 1, 1, 1, 1, 1, 1, 4, 5, 6 },
                         h[] = { 0, 1, 1, 1, 2, 2, 2, 4, 5, 6 },
                         w[] = { 0, 1, 2, 3, 1, 2, 3, 4, 5, 6 };
    const ares_medium items[] = { wide, small };
    const ares_media media = media_of(items, 2, 0);
    check_positions(&qwen2_5, &media, ids, 10, t, h, w, -3);
}

TEST(times_of_a_video_are_those_of_its_family)
{
    static const int32_t ids[] = { 1, VIDEO, VIDEO, VIDEO, VIDEO, VIDEO, VIDEO, 2 },
                         h[][8] = { { 0, 1, 1, 1, 1, 1, 1, 6 },
                                    { 0, 1, 1, 1, 1, 1, 1, 4 },
                                    { 0, 1, 1, 1, 1, 1, 1, 3 } },
                         w[][8] = { { 0, 1, 2, 1, 2, 1, 2, 6 },
                                    { 0, 1, 2, 1, 2, 1, 2, 4 },
                                    { 0, 1, 2, 1, 2, 1, 2, 3 } },
                         t[][8] = { { 0, 1, 1, 3, 3, 5, 5, 6 },   /* two steps a second */
                                    { 0, 1, 1, 2, 2, 3, 3, 4 },   /* one a pair of frames */
                                    { 0, 1, 1, 1, 1, 2, 2, 3 } }; /* 0, 0.8, 1.6 cut */
    ares_media_rules qwen2 = qwen2_5;
    qwen2.tokens_per_second = 0;
    ares_medium slow = clip;
    slow.second_per_grid = 0.4;
    const ares_media media = media_of(&clip, 0, 1), of_slow = media_of(&slow, 0, 1);
    check_positions(&qwen2_5, &media, ids, 8, t[0], h[0], w[0], -1);
    check_positions(&qwen2, &media, ids, 8, t[1], h[1], w[1], -3);
    check_positions(&qwen2_5, &of_slow, ids, 8, t[2], h[2], w[2], -4);
}

TEST(images_and_videos_take_their_places_each_in_their_own_order)
{
    static const int32_t ids[] = { VIDEO, VIDEO, VIDEO, VIDEO, VIDEO, VIDEO, IMAGE,
                                   1,     IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE };
    const ares_medium items[] = { small, wide, clip };
    const ares_media media = media_of(items, 2, 1);
    ares_arena arena = { 0 };
    ares_row_media s;
    REQUIRE_OK(row_media_of(&qwen2_5, &media, ids, ARES_COUNT(ids), &arena, &s));
    REQUIRE(s.n_places == 3);
    CHECK(s.places[0].medium == &items[2] && s.places[0].first == 0 && s.places[0].n == 6);
    CHECK(s.places[1].medium == &items[0] && s.places[1].first == 6 && s.places[1].n == 1);
    CHECK(s.places[2].medium == &items[1] && s.places[2].first == 8 && s.places[2].n == 6);
    CHECK_FAIL(row_media_of(&qwen2_5, &media, ids, 10, &arena, &s), ARES_EFORMAT,
               "2 tokens of an image from token 8 on, and what is given for that place needs 6");
    CHECK_FAIL(row_media_of(&qwen2_5, &media, ids, 8, &arena, &s), ARES_EFORMAT,
               "3 images and videos, and places of only 2");
    ares_arena_fini(&arena);
}

TEST(a_video_that_lasts_longer_than_positions_reach_is_an_error)
{
    static const int32_t ids[] = { VIDEO, VIDEO, VIDEO, VIDEO, VIDEO, VIDEO };
    static const double seconds[] = { 1e9, -1, NAN };
    for (int i = 0; i < ARES_COUNT(seconds); i++) {
        ares_medium x = clip;
        x.second_per_grid = seconds[i];
        const ares_media media = media_of(&x, 0, 1);
        ares_arena arena = { 0 };
        ares_row_media s;
        CHECK_FAIL(row_media_of(&qwen2_5, &media, ids, 6, &arena, &s), ARES_EFORMAT,
                   "must last from 0 to");
        ares_arena_fini(&arena);
    }
}

/* ---------------------------------------------------------------- packed tokens */
/* A group of two rows after `prompt` of n ids; the answers of lens tokens go on with ids + n. */
static void add_group(ares_batch *b, const int32_t *ids, int32_t n, const ares_row_media *row_media,
                      const int *lens)
{
    ares_batch_begin_group(b);
    for (int i = 0; i < 2; i++) {
        const ares_sample s = {
            .index = i, .prompt = ids, .prompt_len = n, .row_media = row_media
        };
        ares_batch_add_row(b, &s, lens[i]);
    }
}

typedef struct packed_case {
    ares_arena arena;
    ares_batch b;
    ares_row_media row_media[2];
    ares_medium items[2];
} packed_case;

/* In the first group a picture stands in the prompt, in the second in its end and in the answer. */
static const int32_t in_prompt[] = { 1, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, 2, 3, 4, 5 },
                     in_both[] = { 6, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, 7, IMAGE, 8, 9 };
enum { FIRST = 8, SECOND = 4 }; /* tokens of the prompts */

static bool open_case(packed_case *c)
{
    static const int first[] = { 3, 2 }, second[] = { 7, 6 };
    *c = (packed_case){ .items = { wide, small } };
    const ares_media one = media_of(c->items, 1, 0), two = media_of(c->items, 2, 0);
    ares_batch_init(&c->b);
    if (!CHECK_OK(row_media_of(&qwen2_5, &one, in_prompt, FIRST, &c->arena, &c->row_media[0])) ||
        !CHECK_OK(row_media_of(&qwen2_5, &two, in_both, 11, &c->arena, &c->row_media[1])))
        return false;
    add_group(&c->b, in_prompt, FIRST, &c->row_media[0], first);
    add_group(&c->b, in_both, SECOND, &c->row_media[1], second);
    ARES_PUT(&c->b, responses);
    for (int64_t r = 0; r < c->b.rows; r++)
        for (int64_t t = c->b.row_start[r]; t < c->b.row_start[r + 1]; t++)
            c->b.responses[t] = r < 2 ? in_prompt[FIRST + t - c->b.row_start[r]]
                                      : in_both[SECOND + t - c->b.row_start[r]];
    return true;
}

/* Every feature row is a place's token, and says the feature that stands there. */
static void check_shown(const packed_case *c, const ares_packed *p, int32_t features, int32_t shown)
{
    CHECK_EQ(p->n_features, features);
    CHECK_EQ(p->n_shown, shown);
    int32_t places = 0, next = 0;
    for (int32_t r = 0; r < p->rows; r++) places += p->ids[r] == IMAGE;
    CHECK_EQ(places, features);
    for (int32_t i = 0; i < p->n_shown; i++) {
        const ares_shown *x = &p->shown[i];
        CHECK_EQ(x->at, next);
        CHECK(x->from >= 0 && x->n > 0 && x->from + x->n <= ares_medium_tokens(x->medium, 2));
        CHECK(x->medium == &c->items[0] || x->medium == &c->items[1]);
        for (int32_t k = 0; k < x->n; k++, next++) {
            int32_t row = p->feature_rows[next], from = x->from + k, wide_row = from / 3;
            CHECK_EQ(p->ids[row], IMAGE);
            if (x->medium != &c->items[0]) continue;
            /* the picture begins at position 1 on all axes in both groups */
            CHECK_EQ(p->positions[row], 1);
            CHECK_EQ(p->positions_h[row], 1 + wide_row);
            CHECK_EQ(p->positions_w[row], 1 + from % 3);
        }
    }
    CHECK_EQ(next, features);
}

TEST(packed_rows_show_each_picture_where_its_tokens_are)
{
    packed_case c;
    if (!open_case(&c)) return;
    for (int share = 0; share < 2; share++) {
        ares_micro_batch m[4];
        ares_packed p;
        const int32_t *targets;
        CHECK_EQ(ares_pack_plan(&c.b, 0, c.b.rows, 1000, share, m), 1);
        ares_pack_build(&c.b, &(ares_micro_set){ 1, m, m->tokens, m->out }, share, &c.arena, &p,
                        &targets);
        /* first group: 6 per prompt; second: 3 in a prompt, 3 and 1 in the answers */
        check_shown(&c, &p, share ? 6 + 3 + 8 : 12 + 6 + 8, share ? 1 + 1 + 4 : 2 + 2 + 4);
        /* behind the first group's picture: 4 in the prompt, then 5, 6 */
        CHECK(p.positions[FIRST - 1] == 4 && p.positions_h[FIRST - 1] == 4);
        CHECK(p.positions[FIRST] == 5 && p.positions_w[FIRST + 1] == 6);
    }
    ares_batch_fini(&c.b);
    ares_arena_fini(&c.arena);
}

TEST(rows_of_the_same_ids_and_other_pictures_share_no_prompt)
{
    ares_batch b;
    ares_arena arena = { 0 };
    ares_row_media row_media[2];
    const ares_medium other = wide;
    const ares_media one = media_of(&wide, 1, 0), two = media_of(&other, 1, 0);
    ares_batch_init(&b);
    REQUIRE_OK(row_media_of(&qwen2_5, &one, in_prompt, FIRST, &arena, &row_media[0]));
    REQUIRE_OK(row_media_of(&qwen2_5, &two, in_prompt, FIRST, &arena, &row_media[1]));
    ares_batch_begin_group(&b);
    for (int i = 0; i < 3; i++) {
        const ares_sample s = {
            .index = i, .prompt = in_prompt, .prompt_len = FIRST, .row_media = &row_media[i == 2]
        };
        ares_batch_add_row(&b, &s, 2);
    }
    ARES_PUT(&b, responses);
    for (int64_t t = 0; t < b.tokens; t++) b.responses[t] = 3;
    ares_micro_batch m[4];
    CHECK_EQ(ares_pack_plan(&b, 0, 3, 1000, true, m), 1);
    CHECK_EQ(m->tokens, 2 * FIRST + 3);
    ares_packed p;
    const int32_t *targets;
    ares_pack_build(&b, &(ares_micro_set){ 1, m, m->tokens, m->out }, true, &arena, &p, &targets);
    CHECK_EQ(p.n_shown, 2);
    CHECK(p.shown[0].medium == &wide && p.shown[1].medium == &other);
    ares_batch_fini(&b);
    ares_arena_fini(&arena);
}

TEST(packed_text_has_one_axis_and_shows_nothing)
{
    static const int32_t ids[] = { 1, 2, 3 };
    static const int lens[] = { 2, 1 };
    ares_batch b;
    ares_arena arena = { 0 };
    ares_micro_batch m[2];
    ares_packed p;
    const int32_t *targets;
    ares_batch_init(&b);
    add_group(&b, ids, 3, NULL, lens);
    ARES_PUT(&b, responses);
    for (int64_t t = 0; t < b.tokens; t++) b.responses[t] = 4;
    CHECK_EQ(ares_pack_plan(&b, 0, 2, 100, true, m), 1);
    ares_pack_build(&b, &(ares_micro_set){ 1, m, m->tokens, m->out }, true, &arena, &p, &targets);
    CHECK(!p.positions_h && !p.positions_w && !p.feature_rows && p.n_features == 0);
    ares_batch_fini(&b);
    ares_arena_fini(&arena);
}
