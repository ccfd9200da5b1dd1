/*
 * Curves with bands as SVG. The frame has a fixed size; the legend stands to its right and takes
 * the width that its names need.
 */
#include "figure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 640,
    HEIGHT = 360,
    LEFT = 76,
    TOP = 64,
    BOTTOM = 56,
    LEGEND_GAP = 20,
    LEGEND_LINE = 22,
    SAMPLE = 34,
    CHARACTER = 8,
    TICKS = 6
};

static const char *const colours[] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                       "#e69f00", "#56b4e9", "#000000", "#8c8400" };
static const char *const dashes[] = { "", "7 3", "2 3", "9 3 2 3" };

static const char *colour_of(int i)
{
    return colours[i % ARES_COUNT(colours)];
}
static const char *dash_of(int i)
{
    return dashes[(i + i / ARES_COUNT(colours)) % ARES_COUNT(dashes)];
}

/*
 * Ticks at multiples of 1, 2 or 5 times a power of ten; the first and the last lie on or inside the
 * data's ends.
 */
typedef struct axis {
    double low, high, step;
    int decimals;
} axis;

static axis axis_of(double low, double high, bool whole)
{
    if (!(high > low)) {
        double pad = fabs(low) > 0 ? 0.1 * fabs(low) : 1;
        low -= pad;
        high += pad;
    }
    double raw = (high - low) / TICKS, power = pow(10, floor(log10(raw))), lead = raw / power;
    double step = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
    if (whole && step < 1) step = 1;
    int decimals = (int)ceil(-log10(step) - 1e-9);
    return (axis){ low, high, step, decimals > 0 ? decimals : 0 };
}

static double across(const axis *x, double v)
{
    return LEFT + (v - x->low) / (x->high - x->low) * WIDTH;
}
static double up(const axis *y, double v)
{
    return TOP + HEIGHT - (v - y->low) / (y->high - y->low) * HEIGHT;
}

static void add_text(ares_str *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '&') ares_str_add_z(out, "&amp;");
        else if (*text == '<') ares_str_add_z(out, "&lt;");
        else if (*text == '>') ares_str_add_z(out, "&gt;");
        else if ((unsigned char)*text >= ' ') ares_str_add_char(out, *text);
    }
}

static void write_text(ares_str *out, const char *attributes, const char *text)
{
    ares_str_addf(out, "<text %s>", attributes);
    add_text(out, text);
    ares_str_add_z(out, "</text>\n");
}

static void write_axes(const figure *f, const axis *x, const axis *y, ares_str *out)
{
    char place[160], number[64];
    for (double v = ceil(y->low / y->step - 1e-9) * y->step; v <= y->high + 1e-9 * y->step;
         v += y->step) {
        double at = up(y, v);
        ares_str_addf(out, "<path d=\"M%d %.1fh%d\" stroke=\"#dddddd\"/>\n", LEFT, at, WIDTH);
        snprintf(place, sizeof place, "x=\"%d\" y=\"%.1f\" text-anchor=\"end\"", LEFT - 8,
                 at + 4.5);
        snprintf(number, sizeof number, "%.*f", y->decimals, fabs(v) < 1e-9 * y->step ? 0 : v);
        write_text(out, place, number);
    }
    for (double v = ceil(x->low / x->step - 1e-9) * x->step; v <= x->high + 1e-9 * x->step;
         v += x->step) {
        double at = across(x, v);
        ares_str_addf(out, "<path d=\"M%.1f %dv5\" stroke=\"#444444\"/>\n", at, TOP + HEIGHT);
        snprintf(place, sizeof place, "x=\"%.1f\" y=\"%d\" text-anchor=\"middle\"", at,
                 TOP + HEIGHT + 20);
        /* no -0 */
        snprintf(number, sizeof number, "%.*f", x->decimals, fabs(v) < 1e-9 * x->step ? 0 : v);
        write_text(out, place, number);
    }
    ares_str_addf(out, "<path d=\"M%d %dv%dh%d\" fill=\"none\" stroke=\"#444444\"/>\n", LEFT, TOP,
                  HEIGHT, WIDTH);
    snprintf(place, sizeof place, "x=\"%d\" y=\"%d\" text-anchor=\"middle\"", LEFT + WIDTH / 2,
             TOP + HEIGHT + 44);
    write_text(out, place, f->x_label);
    snprintf(place, sizeof place,
             "transform=\"translate(20 %d) rotate(-90)\" text-anchor=\"middle\"", TOP + HEIGHT / 2);
    write_text(out, place, f->y_label);
}

static void write_band(const figure_curve *c, int i, const axis *x, const axis *y, ares_str *out)
{
    bool wide = false;
    for (int64_t k = 0; k < c->n; k++) wide = wide || c->high[k] > c->low[k];
    if (!wide) return;
    ares_str_addf(out, "<path fill=\"%s\" fill-opacity=\"0.14\" d=\"", colour_of(i));
    for (int64_t k = 0; k < c->n; k++)
        ares_str_addf(out, "%c%.1f %.1f", k ? 'L' : 'M', across(x, c->x[k]), up(y, c->high[k]));
    for (int64_t k = c->n; k-- > 0;)
        ares_str_addf(out, "L%.1f %.1f", across(x, c->x[k]), up(y, c->low[k]));
    ares_str_add_z(out, "Z\"/>\n");
}

static void write_line(const figure_curve *c, int i, const axis *x, const axis *y, ares_str *out)
{
    if (c->n == 1)
        ares_str_addf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n",
                      across(x, c->x[0]), up(y, c->mid[0]), colour_of(i));
    if (c->n < 2) return;
    ares_str_addf(out,
                  "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2.2\" "
                  "stroke-linejoin=\"round\" stroke-dasharray=\"%s\" d=\"",
                  colour_of(i), dash_of(i));
    for (int64_t k = 0; k < c->n; k++)
        ares_str_addf(out, "%c%.1f %.1f", k ? 'L' : 'M', across(x, c->x[k]), up(y, c->mid[k]));
    ares_str_add_z(out, "\"/>\n");
}

static void write_legend(const figure *f, ares_str *out)
{
    int x = LEFT + WIDTH + LEGEND_GAP;
    for (int i = 0; i < f->n_curves; i++) {
        char place[96];
        int y = TOP + 12 + i * LEGEND_LINE;
        ares_str_addf(
            out,
            "<path d=\"M%d %dh%d\" stroke=\"%s\" stroke-width=\"2.2\" stroke-dasharray=\"%s\"/>\n",
            x, y, SAMPLE, colour_of(i), dash_of(i));
        snprintf(place, sizeof place, "x=\"%d\" y=\"%d\"", x + SAMPLE + 8, y + 5);
        write_text(out, place, f->curves[i].name);
    }
}

static void bounds(const figure *f, double x[2], double y[2])
{
    x[0] = y[0] = INFINITY;
    x[1] = y[1] = -INFINITY;
    for (int i = 0; i < f->n_curves; i++)
        for (int64_t k = 0; k < f->curves[i].n; k++) {
            const figure_curve *c = &f->curves[i];
            x[0] = fmin(x[0], c->x[k]);
            x[1] = fmax(x[1], c->x[k]);
            y[0] = fmin(y[0], c->low[k]);
            y[1] = fmax(y[1], c->high[k]);
        }
    if (x[0] <= x[1]) return;
    x[0] = y[0] = 0; /* no curve has points: an empty frame */
    x[1] = y[1] = 1;
}

void figure_write_svg(const figure *f, ares_str *out)
{
    double xs[2], ys[2];
    size_t longest = 0;
    bounds(f, xs, ys);
    if (xs[0] > 0 && xs[0] < 0.1 * xs[1]) xs[0] = 0; /* steps count from 1 */
    double pad = 0.04 * (ys[1] - ys[0]);
    axis x = axis_of(xs[0], xs[1], true),
         y = axis_of(ys[0] - (ys[0] == 0 ? 0 : pad), ys[1] + pad, false);
    for (int i = 0; i < f->n_curves; i++) longest = ARES_MAX(longest, strlen(f->curves[i].name));
    int beside = LEFT + WIDTH + LEGEND_GAP + SAMPLE + 8 + (int)longest * CHARACTER + 12;
    int width = ARES_MAX(beside, LEFT + (int)ARES_MAX(strlen(f->subtitle) * CHARACTER,
                                                      strlen(f->title) * (CHARACTER + 2))),
        height = TOP + HEIGHT + BOTTOM;
    int legend = TOP + f->n_curves * LEGEND_LINE + 12;
    height = ARES_MAX(height, legend);
    ares_str_addf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
        "%d\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222222\">\n",
        width, height, width, height);
    ares_str_add_z(out, "<title>");
    add_text(out, f->title);
    ares_str_add_z(out, "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    char place[64];
    snprintf(place, sizeof place, "x=\"%d\" y=\"26\" font-size=\"17\" font-weight=\"bold\"", LEFT);
    write_text(out, place, f->title);
    snprintf(place, sizeof place, "x=\"%d\" y=\"47\" fill=\"#555555\"", LEFT);
    write_text(out, place, f->subtitle);
    write_axes(f, &x, &y, out);
    for (int i = 0; i < f->n_curves; i++) write_band(&f->curves[i], i, &x, &y, out);
    /* drawn last to first, so that the first curve lies above the others */
    for (int i = f->n_curves; i-- > 0;) write_line(&f->curves[i], i, &x, &y, out);
    write_legend(f, out);
    ares_str_add_z(out, "</svg>\n");
}
