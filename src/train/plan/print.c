/* A plan as a table, and as JSON. */
#include "plan/plan.h"

static double gb(double bytes)
{
    return bytes / 1e9;
}

void plan_print(const plan *p, const plan_where *where, ares_str *out)
{
    const largest_micro *m = &p->micro;
    ares_str_addf(out, "%.4g million parameters, %d rank%s, %.1f GB for each\n\n",
                  p->parameters / 1e6, where->ranks, where->ranks == 1 ? "" : "s",
                  gb(where->memory));
    ares_str_addf(out, "%-36s %12s %12s\n", "GB per rank", "rollout", "training");
    for (int i = 0; i < PLAN_OWNERS_N; i++)
        if (p->bytes[i][PLAN_ROLLOUT] != 0 || p->bytes[i][PLAN_TRAINING] != 0)
            ares_str_addf(out, "%-36s %12.4f %12.4f\n", plan_owner_names[i],
                          gb(p->bytes[i][PLAN_ROLLOUT]), gb(p->bytes[i][PLAN_TRAINING]));
    ares_str_addf(out, "%-36s %12.4f %12.4f\n", "sum", gb(p->total[PLAN_ROLLOUT]),
                  gb(p->total[PLAN_TRAINING]));
    ares_str_addf(out, "%-36s %25.4f\n\n", "must be there", gb(plan_needs(p)));
    if (p->card && p->copied > 0)
        ares_str_addf(out, "host memory: %.4f GB for the copy of a checkpoint\n", gb(p->copied));
    if (p->cache_tokens > 0) ares_str_addf(out, "kv cache: %.0f tokens\n", p->cache_tokens);
    if (!m->tokens) return;
    ares_str_addf(out,
                  "largest micro-batch: %lld tokens; %lld fit\n"
                  "longest row: %lld tokens; %lld fit\n",
                  (long long)m->tokens, (long long)p->most_micro,
                  (long long)(m->prompt + m->response), (long long)p->most_row);
    if (p->pictures.tokens)
        ares_str_addf(
            out,
            "largest image: %lld tokens; a step has up to %lld, with %.4f GB of pixels and %.4f "
            "of features on the host; %.4f more may stay over steps\n",
            (long long)p->pictures.tokens, (long long)p->pictures.step, gb(p->pictures.pixels),
            gb(p->pictures.features), gb(p->pictures.stored));
    if (plan_longest_video(p) > 0)
        ares_str_addf(out,
                      "a video that fills a prompt: %lld tokens, for which the tower takes %.4f GB "
                      "more\n",
                      (long long)p->pictures.room, gb(plan_longest_video(p)));
    if (where->ranks == 1) return;
    ares_str_addf(out,
                  "a training step sends %.3f GB per rank; of its %lld optimizer steps, computed "
                  "with %g TFLOP/s and %g GB/s, each\nsends %.3f GB and takes %.3g s, of which "
                  "%.3g s (%.1f %%) wait for the link\n",
                  gb(p->sent), (long long)p->updates, p->flops / 1e12, gb(p->link),
                  gb(p->update.sent), p->update.total, p->update.exposed,
                  100 * p->update.exposed / p->update.total);
}

static void write_number(ares_str *out, const char *key, double x)
{
    ares_json_write_double(ares_json_key(out, key), x);
}

static void write_bytes(const plan *p, int phase, ares_str *out)
{
    ares_json_begin(out, '{');
    for (int i = 0; i < PLAN_OWNERS_N; i++)
        write_number(out, plan_owner_names[i], p->bytes[i][phase]);
    write_number(out, "sum", p->total[phase]);
    ares_json_end(out, '}');
}

void plan_write_json(const plan *p, const plan_where *where, ares_str *out)
{
    ares_json_begin(out, '{');
    write_number(out, "parameters", p->parameters);
    write_number(out, "ranks", where->ranks);
    write_number(out, "memory_bytes", where->memory);
    write_bytes(p, PLAN_ROLLOUT, ares_json_key(out, "rollout_bytes"));
    write_bytes(p, PLAN_TRAINING, ares_json_key(out, "training_bytes"));
    write_number(out, "needed_bytes", plan_needs(p));
    write_number(out, "allocated_bytes", p->allocated);
    write_number(out, "checkpoint_copy_bytes", p->copied);
    write_number(out, "cache_tokens", p->cache_tokens);
    write_number(out, "micro_batch_tokens", (double)p->micro.tokens);
    write_number(out, "micro_batch_tokens_that_fit", (double)p->most_micro);
    write_number(out, "row_tokens", (double)(p->micro.prompt + p->micro.response));
    write_number(out, "row_tokens_that_fit", (double)p->most_row);
    ares_json_begin(ares_json_key(out, "pictures"), '{');
    write_number(out, "tokens_of_the_largest", (double)p->pictures.tokens);
    write_number(out, "tokens_of_a_step", (double)p->pictures.step);
    write_number(out, "bytes_more_of_the_longest_video", plan_longest_video(p));
    write_number(out, "host_bytes_of_pixels", p->pictures.pixels);
    write_number(out, "host_bytes_of_features", p->pictures.features);
    write_number(out, "host_bytes_over_steps", p->pictures.stored);
    ares_json_end(out, '}');
    write_number(out, "optimizer_steps", (double)p->updates);
    write_number(out, "sent_bytes_per_optimizer_step", p->update.sent);
    write_number(out, "sent_bytes_per_training_step", p->sent);
    ares_json_begin(ares_json_key(out, "computed"), '{');
    write_number(out, "flops_per_second", p->flops);
    write_number(out, "link_bytes_per_second", p->link);
    write_number(out, "update_s", p->update.total);
    write_number(out, "exposed_s", p->update.exposed);
    ares_json_end(out, '}');
    ares_json_end(out, '}');
    ares_str_add_char(out, '\n');
}
