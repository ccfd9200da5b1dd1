/* Metrics: names -> scalars, and where they are written: metrics.jsonl and TensorBoard. */
#include "internal.h"
#include "tracker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "ares/core.h"
#include "ares/io.h"

struct ares_metrics {
    ares_map *names; /* name -> index; a cleared set of metrics begins with an empty map */
    double *values;
    int64_t cap;
};

ares_metrics *ares_metrics_new(void)
{
    ares_metrics *m = ares_calloc(1, sizeof *m);
    m->names = ares_map_new();
    return m;
}

void ares_metrics_free(ares_metrics *m)
{
    if (!m) return;
    ares_map_free(m->names);
    ares_free(m->values);
    ares_free(m);
}

/* Names go, too, so that a step logs only what it measured; the room for values stays. */
void ares_metrics_clear(ares_metrics *m)
{
    ares_map_free(m->names);
    m->names = ares_map_new();
}

/*
 * A name as it is kept: without white space, which a reward's name or a value of the user's data
 * may bring along, and which tools that read the names do not expect. `changed` holds the name
 * where it had to be changed.
 */
static ares_view clean(const char *name, ares_str *changed)
{
    static const char blanks[] = " \t\n\v\f\r";
    if (!name[strcspn(name, blanks)]) return ares_view_of(name);
    ares_str_add_z(changed, name);
    for (size_t i = 0; i < changed->len; i++)
        if (strchr(blanks, changed->data[i])) changed->data[i] = '_';
    return ares_str_view(changed);
}

/* The value of a name, 0 where it is new. */
static double *entry(ares_metrics *m, const char *name)
{
    int64_t index = ares_map_count(m->names);
    ares_str changed = { 0 };
    ares_view key = clean(name, &changed);
    bool known = ares_map_get(m->names, key, &index);
    if (!known) ares_map_put(m->names, key, index);
    ares_str_fini(&changed);
    if (known) return &m->values[index];
    if (index == m->cap) {
        m->cap = m->cap ? m->cap * 2 : 64;
        m->values = ares_realloc(m->values, (size_t)m->cap * sizeof *m->values);
    }
    m->values[index] = 0;
    return &m->values[index];
}

void ares_metrics_set(ares_metrics *m, const char *name, double value)
{
    *entry(m, name) = value;
}

void ares_metrics_add(ares_metrics *m, const char *name, double value)
{
    *entry(m, name) += value;
}

bool ares_metrics_get(const ares_metrics *m, const char *name, double *value)
{
    int64_t index;
    ares_str changed = { 0 };
    bool known = ares_map_get(m->names, clean(name, &changed), &index);
    ares_str_fini(&changed);
    if (!known) return false;
    *value = m->values[index];
    return true;
}

int ares_metrics_count(const ares_metrics *m)
{
    return (int)ares_map_count(m->names);
}

const char *ares_metrics_name(const ares_metrics *m, int i)
{
    return ares_map_key(m->names, i).data;
}

double ares_metrics_value(const ares_metrics *m, int i)
{
    ARES_ASSERT(i >= 0 && i < ares_metrics_count(m));
    return m->values[i];
}

/*
 * metrics.jsonl and TensorBoard event files. An event file consists of records {length, masked
 * CRC-32C of the length, protobuf Event, masked CRC-32C of the event}; the few messages needed are
 * written field by field (tensorflow/core/util/event.proto, framework/summary.proto). A resumed run
 * opens a new event file; the rows of the steps that it repeats are cut from metrics.jsonl.
 */

struct ares_tracker {
    jsonl_writer *metrics;
    int events; /* -1: none */
    char *events_path;
    trackers *others;             /* NULL: none */
    ares_str line, event, record; /* kept for their memory: emptied for each use */
};

/* ---------------------------------------------------------------- protobuf and records
 * Wire types of proto_key: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
 */
uint32_t tracker_crc32(uint32_t polynomial, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (polynomial & (0u - (crc & 1)));
    }
    return ~crc;
}

static uint32_t masked_crc32c(const void *data, size_t n)
{
    uint32_t crc = tracker_crc32(0x82f63b78u, data, n); /* Castagnoli's polynomial */
    /* TFRecord masks its checksums, so that data which holds checksums can be checked, too */
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* An unsigned integer of 1 to 8 bytes, the lowest byte first. */
void proto_little(ares_str *s, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) ares_str_add_char(s, (char)(v >> (8 * i)));
}

/* Protobuf's integers: 7 bits a byte, the lowest first; the top bit: more follow. */
void proto_varint(ares_str *s, uint64_t v)
{
    for (; v >= 128; v >>= 7) ares_str_add_char(s, (char)(v | 128));
    ares_str_add_char(s, (char)v);
}

void proto_key(ares_str *s, int field, int wire)
{
    proto_varint(s, (uint64_t)field << 3 | (uint64_t)wire);
}

/* A field of a text or of a message that is written whole: key, length, bytes. */
void proto_bytes(ares_str *s, int field, ares_view v)
{
    proto_key(s, field, 2);
    proto_varint(s, v.len);
    ares_str_add_view(s, v);
}

static void put_double(ares_str *s, int field, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    proto_key(s, field, 1);
    proto_little(s, bits, 8);
}

double tracker_now(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (double)now.tv_sec + (double)now.tv_usec * 1e-6;
}

/* One Event {wall_time 1, step 2, and a payload: file_version 3, summary 5 or session_log 7}. */
static int write_event(ares_tracker *t, int64_t step, int field, ares_view payload)
{
    ares_str_clear(&t->event);
    put_double(&t->event, 1, tracker_now());
    proto_key(&t->event, 2, 0);
    proto_varint(&t->event, (uint64_t)step);
    proto_bytes(&t->event, field, payload);
    ares_str_clear(&t->record);
    proto_little(&t->record, t->event.len, 8);
    proto_little(&t->record, masked_crc32c(t->record.data, 8), 4);
    ares_str_add_view(&t->record, ares_str_view(&t->event));
    proto_little(&t->record, masked_crc32c(t->event.data, t->event.len), 4);
    return io_write_all(t->events, t->events_path, t->record.data, t->record.len, -1);
}

/* ---------------------------------------------------------------- opening */

int ares_tracker_open(const ares_tracker_run *r, ares_tracker **out)
{
    const char *run_dir = r->dir;
    int64_t from_step = r->from_step;
    bool tensorboard = false;
    *out = NULL;
    for (int64_t i = 0; i < r->n_loggers; i++)
        tensorboard = tensorboard || strcmp(r->loggers[i], "tensorboard") == 0;
    ares_tracker *t = ares_calloc(1, sizeof *t);
    ares_str path = { 0 };
    ares_jsonl *old = NULL;
    const ares_json *row;
    int64_t keep = 0, step; /* lines to keep: those of the steps before from_step */
    int rc = ARES_OK;
    t->events = -1;
    ares_path_join(&path, run_dir, "metrics.jsonl");
    if (from_step > 0 && ares_file_exists(path.data)) rc = ares_jsonl_open(path.data, &old);
    if (old) {
        /* up to a torn line or the first step to be repeated */
        while (ares_jsonl_next(old, &row, NULL) > 0 &&
               ares_json_get_i64(row, "step", INT64_MAX, &step) == ARES_OK && step < from_step)
            keep++;
        ares_jsonl_close(old);
        ares_error_clear();
    }
    if (rc == ARES_OK) rc = jsonl_create(path.data, keep, &t->metrics);
    if (rc == ARES_OK && tensorboard) {
        /* a new event file; after a resume it tells readers to forget the rest */
        char name[300], host[128] = "host";
        ares_str events = { 0 }, start = { 0 };
        gethostname(host, sizeof host - 1);
        /* counts up, because a run that is resumed within a second would get the same name */
        for (int again = 0; t->events < 0 && (again == 0 || errno == EEXIST); again++) {
            snprintf(name, sizeof name, "events.out.tfevents.%lld.%s.%ld.%d",
                     (long long)tracker_now(), host, (long)getpid(), again);
            ares_path_join(&events, run_dir, name);
            t->events = open(events.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        }
        if (t->events < 0) rc = ares_fail(ARES_EIO, "io: %s: %s", events.data, strerror(errno));
        t->events_path = ares_str_take(&events);
        if (rc == ARES_OK) rc = write_event(t, 0, 3, ARES_VIEW("brain.Event:2"));
        /* SessionLog {status 1 = START}: readers forget the steps from here on */
        if (rc == ARES_OK && from_step > 0) {
            proto_key(&start, 1, 0);
            proto_varint(&start, 1);
            rc = write_event(t, from_step, 7, ares_str_view(&start));
            ares_str_fini(&start);
        }
    }
    ares_str_fini(&path);
    if (rc == ARES_OK) rc = trackers_open(r, &t->others);
    if (rc != ARES_OK) {
        ares_tracker_close(t, false);
        return rc;
    }
    *out = t;
    return ARES_OK;
}

int ares_tracker_close(ares_tracker *t, bool finished)
{
    if (!t) return ARES_OK;
    trackers_close(t->others, finished);
    int rc = jsonl_finish(t->metrics);
    if (t->events >= 0 && close(t->events) != 0 && rc == ARES_OK)
        rc = ares_fail(ARES_EIO, "io: %s: %s", t->events_path, strerror(errno));
    ares_free(t->events_path);
    ares_str_fini(&t->line);
    ares_str_fini(&t->event);
    ares_str_fini(&t->record);
    ares_free(t);
    return rc;
}

/* ---------------------------------------------------------------- logging */
/* A line of JSON and, where there is TensorBoard, a summary with a value per metric. */
static int log_row(ares_tracker *t, int64_t step, const ares_metrics *m)
{
    ares_str *s = &t->line;
    ares_str_clear(s);
    ares_json_begin(s, '{');
    ares_json_write_i64(ares_json_key(s, "step"), step);
    for (int i = 0; i < ares_metrics_count(m); i++)
        ares_json_write_double(ares_json_key(s, ares_metrics_name(m, i)), ares_metrics_value(m, i));
    ares_json_end(s, '}');
    ARES_TRY(jsonl_write(t->metrics, s->data, s->len));
    if (t->events < 0) return ARES_OK;
    ares_str summary = { 0 }, value = { 0 };
    for (int i = 0; i < ares_metrics_count(m); i++) { /* Summary.value 1: {tag 1, simple_value 2} */
        float x = (float)ares_metrics_value(m, i);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        ares_str_clear(&value);
        proto_bytes(&value, 1, ares_view_of(ares_metrics_name(m, i)));
        proto_key(&value, 2, 5);
        proto_little(&value, bits, 4);
        proto_bytes(&summary, 1, ares_str_view(&value));
    }
    int rc = write_event(t, step, 5, ares_str_view(&summary));
    ares_str_fini(&summary);
    ares_str_fini(&value);
    return rc;
}

int ares_tracker_log(ares_tracker *t, int64_t step, const ares_metrics *m)
{
    ARES_TRY(log_row(t, step, m));
    trackers_log(t->others, step, m);
    return ARES_OK;
}

bool ares_tracker_shows_alerts(const ares_tracker *t)
{
    return trackers_show_alerts(t->others);
}

void ares_tracker_tell(ares_tracker *t, int64_t step, const ares_tracker_alert *a)
{
    trackers_tell(t->others, step, a);
}

int ares_tracker_sync(ares_tracker *t)
{
    return jsonl_sync(t->metrics);
}

int ares_tracker_text(ares_tracker *t, int64_t step, const char *tag, ares_view text)
{
    if (t->events < 0) return ARES_OK;
    ares_str plugin = { 0 }, metadata = { 0 }, tensor = { 0 }, shape = { 0 }, dim = { 0 },
             value = { 0 }, summary = { 0 };
    proto_bytes(&plugin, 1, ARES_VIEW("text"));        /* PluginData.plugin_name */
    proto_bytes(&metadata, 1, ares_str_view(&plugin)); /* SummaryMetadata.plugin_data */
    proto_key(&dim, 1, 0);                             /* TensorShapeProto.Dim.size */
    proto_varint(&dim, 1);
    proto_bytes(&shape, 2, ares_str_view(&dim));
    proto_key(&tensor, 1, 0); /* TensorProto.dtype = DT_STRING */
    proto_varint(&tensor, 7);
    proto_bytes(&tensor, 2, ares_str_view(&shape));
    proto_bytes(&tensor, 8, text); /* TensorProto.string_val */
    proto_bytes(&value, 1, ares_view_of(tag));
    proto_bytes(&value, 9, ares_str_view(&metadata));
    proto_bytes(&value, 8, ares_str_view(&tensor));
    proto_bytes(&summary, 1, ares_str_view(&value));
    int rc = write_event(t, step, 5, ares_str_view(&summary));
    ares_str *all[] = { &plugin, &metadata, &tensor, &shape, &dim, &value, &summary };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_str_fini(all[i]);
    return rc;
}

/* A repeated field of doubles: one key for all. */
static void put_packed_doubles(ares_str *s, int field, const double *x, int64_t n)
{
    proto_key(s, field, 2);
    proto_varint(s, (uint64_t)n * 8);
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        proto_little(s, bits, 8);
    }
}

/* Counts between edges [n + 1]; moments take every bin at its middle. */
int ares_tracker_bins(ares_tracker *t, int64_t step, const char *tag, const double *edge,
                      const double *count, int n)
{
    double total = 0, sum = 0, squares = 0;
    int first = -1, last = -1;
    if (t->events < 0) return ARES_OK;
    for (int b = 0; b < n; b++) {
        double middle = (edge[b] + edge[b + 1]) / 2;
        if (!(count[b] > 0)) continue;
        if (first < 0) first = b;
        last = b;
        total += count[b];
        sum += count[b] * middle;
        squares += count[b] * middle * middle;
    }
    if (first < 0) return ARES_OK; /* nothing was counted */
    /* HistogramProto {min 1, max 2, num 3, sum 4, sum_squares 5, upper edges 6, counts 7} */
    const double head[] = { edge[first], edge[last + 1], total, sum, squares };
    ares_str histogram = { 0 }, value = { 0 }, summary = { 0 };
    for (int i = 0; i < 5; i++) put_double(&histogram, i + 1, head[i]);
    put_packed_doubles(&histogram, 6, edge + 1, n);
    put_packed_doubles(&histogram, 7, count, n);
    proto_bytes(&value, 1, ares_view_of(tag));
    proto_bytes(&value, 5, ares_str_view(&histogram));
    proto_bytes(&summary, 1, ares_str_view(&value));
    int rc = write_event(t, step, 5, ares_str_view(&summary));
    ares_str_fini(&histogram);
    ares_str_fini(&value);
    ares_str_fini(&summary);
    return rc;
}
