/*
 * Curves with bands as SVG. The frame of a figure has a fixed size; its legend stands to its right
 * and takes the width that its names need. A page has smaller frames under a legend in rows.
 */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 640, /* of the frame; all in pixels */
    HEIGHT = 360,
    LEFT = 76,
    TOP = 64,
    BOTTOM = 56,
    LEGEND_GAP = 20,
    LEGEND_LINE = 22,
    SAMPLE = 34,   /* the line beside a name in the legend */
    CHARACTER = 8, /* estimated width: the reader's font is unknown */
    TICKS = 6      /* about so many on an axis; a number, not pixels */
};

/* of Okabe and Ito, which colour-blind readers tell apart, with a darker yellow */
static const char *const colours[] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                       "#e69f00", "#56b4e9", "#000000", "#8c8400" };
static const char *const dashes[] = { "", "7 3", "2 3", "9 3 2 3" };

/* The curve's own colour, else the i-th of the table. */
static const char *colour_of(const figure_curve *c, int i)
{
    return c->colour ? c->colour : colours[i % ARES_COUNT(colours)];
}
/* As the colours: after all of them the dashes move on by one, so that no pair repeats soon. */
static const char *dash_of(const figure_curve *c, int i)
{
    return c->dash ? c->dash : dashes[(i + i / ARES_COUNT(colours)) % ARES_COUNT(dashes)];
}

/* Colour i of n that go from dark violet by green to orange, as an order reads. */
void figure_ordered_colour(int i, int n, char text[static 8])
{
    static const double anchors[][3] = {
        { 68, 1, 84 }, { 59, 82, 139 }, { 33, 145, 140 }, { 80, 170, 80 }, { 214, 150, 0 }
    };
    double at = n > 1 ? (double)i / (n - 1) * (ARES_COUNT(anchors) - 1) : 0;
    int k = ARES_MIN((int)at, ARES_COUNT(anchors) - 2);
    unsigned rgb[3];
    for (int c = 0; c < 3; c++)
        rgb[c] = (unsigned)lround(anchors[k][c] + (at - k) * (anchors[k + 1][c] - anchors[k][c]));
    snprintf(text, 8, "#%02x%02x%02x", rgb[0] & 255, rgb[1] & 255, rgb[2] & 255);
}

/*
 * An axis from low to high. Ticks are multiples of step, which is 1, 2 or 5 times a power of ten;
 * the first and the last lie on or inside low and high.
 */
typedef struct axis {
    double low, high, step;
    int decimals;
} axis;

/* An axis that shows low to high; whole: ticks at whole numbers alone. 0 to 7 has a tick per 2. */
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

/* Where a figure is drawn, in pixels of the picture, and what its axes show. */
typedef struct plot {
    double left, top, width, height;
    axis x, y;
} plot;

/* The place of a value: pixels from the left, and from the top (an SVG's y points down). */
static double across(const plot *p, double v)
{
    return p->left + (v - p->x.low) / (p->x.high - p->x.low) * p->width;
}
static double up(const plot *p, double v)
{
    return p->top + p->height - (v - p->y.low) / (p->y.high - p->y.low) * p->height;
}

/* Escapes what XML would read, and leaves out control characters, which it forbids. */
static void add_text(ares_str *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '&') ares_str_add_z(out, "&amp;");
        else if (*text == '<') ares_str_add_z(out, "&lt;");
        else if (*text == '>') ares_str_add_z(out, "&gt;");
        else if ((unsigned char)*text >= ' ') ares_str_add_char(out, *text);
    }
}

/* A text element; attributes say where it stands. */
static void write_text(ares_str *out, const char *attributes, const char *text)
{
    ares_str_addf(out, "<text %s>", attributes);
    add_text(out, text);
    ares_str_add_z(out, "</text>\n");
}

/* The first multiple of the step inside the axis; a rounding error does not lose it. */
static double first_tick(const axis *a)
{
    return ceil(a->low / a->step - 1e-9) * a->step;
}

/* A mark below the frame, and what stands under it. */
static void write_x_tick(const plot *p, double v, const char *text, ares_str *out)
{
    char place[160];
    double at = across(p, v), bottom = p->top + p->height;
    ares_str_addf(out, "<path d=\"M%.1f %.0fv5\" stroke=\"#444444\"/>\n", at, bottom);
    snprintf(place, sizeof place, "x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\"", at, bottom + 20);
    write_text(out, place, text);
}

/* Lines and numbers of the y axis, ticks of the x axis, the frame, the names of both. */
static void write_axes(const figure *f, const plot *p, ares_str *out)
{
    char place[160], number[64];
    double bottom = p->top + p->height;
    for (double v = first_tick(&p->y); v <= p->y.high + 1e-9 * p->y.step; v += p->y.step) {
        double at = up(p, v);
        ares_str_addf(out, "<path d=\"M%.0f %.1fh%.0f\" stroke=\"#dddddd\"/>\n", p->left, at,
                      p->width);
        snprintf(place, sizeof place, "x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\"", p->left - 8,
                 at + 4.5);
        snprintf(number, sizeof number, "%.*f", p->y.decimals,
                 fabs(v) < 1e-9 * p->y.step ? 0 : v); /* no -0 */
        write_text(out, place, number);
    }
    for (int i = 0; i < f->n_x_names; i++) write_x_tick(p, i, f->x_names[i], out);
    double x_end = p->x.high + 1e-9 * p->x.step;
    for (double v = first_tick(&p->x); v <= x_end && !f->x_names; v += p->x.step) {
        snprintf(number, sizeof number, "%.*f", p->x.decimals, fabs(v) < 1e-9 * p->x.step ? 0 : v);
        write_x_tick(p, v, number, out);
    }
    ares_str_addf(out, "<path d=\"M%.0f %.0fv%.0fh%.0f\" fill=\"none\" stroke=\"#444444\"/>\n",
                  p->left, p->top, p->height, p->width);
    snprintf(place, sizeof place, "x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\"",
             p->left + p->width / 2, bottom + 44);
    write_text(out, place, f->x_label);
    if (!f->y_label) return;
    snprintf(place, sizeof place,
             "transform=\"translate(%.0f %.0f) rotate(-90)\" text-anchor=\"middle\"",
             p->left - (LEFT - 20), p->top + p->height / 2);
    write_text(out, place, f->y_label);
}

/* Whether any point has a band of some height. */
static bool has_band(const figure_curve *c)
{
    for (int64_t k = 0; k < c->n; k++)
        if (c->high[k] > c->low[k]) return true;
    return false;
}

/* Bands, then lines, then crosses, so that no band hides a line. */
static void write_curves(const figure *f, const plot *p, ares_str *out)
{
    int n = 0;
    for (int i = 0; i < f->n_curves; i++) n += has_band(&f->curves[i]);
    double opacity = n > 3 ? 0.42 / n : 0.14; /* so that many overlapping bands stay light */
    for (int i = 0; i < f->n_curves; i++) {   /* a band around the line, or a bar at each point */
        const figure_curve *c = &f->curves[i];
        if (!has_band(c)) continue;
        for (int64_t k = 0; k < c->n && c->bars; k++)
            ares_str_addf(out, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\" stroke-width=\"1.4\"/>\n",
                          across(p, c->x[k]), up(p, c->low[k]), up(p, c->high[k]), colour_of(c, i));
        if (c->bars) continue;
        ares_str_addf(out, "<path fill=\"%s\" fill-opacity=\"%.2f\" d=\"", colour_of(c, i),
                      opacity);
        for (int64_t k = 0; k < c->n; k++) /* along the upper edge, and back along the lower one */
            ares_str_addf(out, "%c%.1f %.1f", k ? 'L' : 'M', across(p, c->x[k]), up(p, c->high[k]));
        for (int64_t k = c->n; k-- > 0;)
            ares_str_addf(out, "L%.1f %.1f", across(p, c->x[k]), up(p, c->low[k]));
        ares_str_add_z(out, "Z\"/>\n");
    }
    /* lines above all bands; last to first, so that the first curve lies above the others */
    for (int i = f->n_curves; i-- > 0;) {
        const figure_curve *c = &f->curves[i];
        for (int64_t k = 0; k < c->n && (c->n == 1 || c->dots); k++)
            ares_str_addf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n",
                          across(p, c->x[k]), up(p, c->mid[k]), colour_of(c, i));
        if (c->n < 2) continue;
        ares_str_addf(out,
                      "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" "
                      "stroke-linejoin=\"round\" stroke-dasharray=\"%s\" d=\"",
                      colour_of(c, i), c->thin ? "1" : "2.2", dash_of(c, i));
        for (int64_t k = 0; k < c->n; k++)
            ares_str_addf(out, "%c%.1f %.1f", k ? 'L' : 'M', across(p, c->x[k]), up(p, c->mid[k]));
        ares_str_add_z(out, "\"/>\n");
    }
    for (int i = f->n_curves; i-- > 0;) {
        const figure_curve *c = &f->curves[i];
        for (int64_t k = 0; k < c->n_crosses; k++) /* where a run was stopped early */
            ares_str_addf(out,
                          "<path class=\"stopped\" d=\"M%.1f %.1fl10 10m0 -10l-10 10\" "
                          "stroke=\"%s\" stroke-width=\"2.4\"/>\n",
                          across(p, c->cross_x[k]) - 5, up(p, c->cross_y[k]) - 5, colour_of(c, i));
    }
}

/* An entry of a legend: a short line as the curve is drawn, then its name. */
static void write_sample(const figure_curve *c, int i, double x, double y, ares_str *out)
{
    char place[96];
    ares_str_addf(
        out,
        "<path d=\"M%.0f %.0fh%d\" stroke=\"%s\" stroke-width=\"2.2\" stroke-dasharray=\"%s\"/>\n",
        x, y, SAMPLE, colour_of(c, i), dash_of(c, i));
    snprintf(place, sizeof place, "x=\"%.0f\" y=\"%.0f\"", x + SAMPLE + 8, y + 5);
    write_text(out, place, c->name);
}

/* The plot of a figure in a frame. */
static plot plot_of(const figure *f, double left, double top, double width, double height)
{
    double xs[2] = { INFINITY, -INFINITY }, ys[2] = { INFINITY, -INFINITY };
    for (int i = 0; i < f->n_curves; i++)
        for (int64_t k = 0; k < f->curves[i].n; k++) {
            const figure_curve *c = &f->curves[i];
            xs[0] = fmin(xs[0], c->x[k]);
            xs[1] = fmax(xs[1], c->x[k]);
            ys[0] = fmin(ys[0], c->low[k]);
            ys[1] = fmax(ys[1], c->high[k]);
        }
    if (!(xs[0] <= xs[1])) { /* no curve has points: an empty frame */
        xs[0] = ys[0] = 0;
        xs[1] = ys[1] = 1;
    }
    if (f->x_names) {
        xs[0] = -0.5;
        xs[1] = f->n_x_names - 0.5;
    } else if (xs[0] > 0 && xs[0] < 0.1 * xs[1]) xs[0] = 0; /* steps count from 1 */
    double pad = 0.04 * (ys[1] - ys[0]);
    return (plot){ left,
                   top,
                   width,
                   height,
                   axis_of(xs[0], xs[1], true),
                   axis_of(ys[0] - (ys[0] == 0 ? 0 : pad), ys[1] + pad, false) };
}

/* The picture's element, its background, title and subtitle. */
static void open_svg(const char *title, const char *subtitle, int width, int height, ares_str *out)
{
    char place[64];
    ares_str_addf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
        "%d\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222222\">\n",
        width, height, width, height);
    ares_str_add_z(out, "<title>");
    add_text(out, title);
    ares_str_add_z(out, "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    snprintf(place, sizeof place, "x=\"%d\" y=\"26\" font-size=\"17\" font-weight=\"bold\"", LEFT);
    write_text(out, place, title);
    snprintf(place, sizeof place, "x=\"%d\" y=\"47\" fill=\"#555555\"", LEFT);
    write_text(out, place, subtitle);
}

/* The width that title and subtitle need. */
static int text_width(const char *title, const char *subtitle)
{
    return LEFT + (int)ARES_MAX(strlen(subtitle) * CHARACTER, strlen(title) * (CHARACTER + 2));
}

/* One figure, with its legend to the right. */
void figure_write_svg(const figure *f, ares_str *out)
{
    size_t longest = 0;
    plot p = plot_of(f, LEFT, TOP, WIDTH, HEIGHT);
    for (int i = 0; i < f->n_curves; i++) longest = ARES_MAX(longest, strlen(f->curves[i].name));
    int beside = LEFT + WIDTH + LEGEND_GAP + SAMPLE + 8 + (int)longest * CHARACTER + 12;
    int width = ARES_MAX(beside, text_width(f->title, f->subtitle)), height = TOP + HEIGHT + BOTTOM;
    int legend = TOP + f->n_curves * LEGEND_LINE + 12;
    open_svg(f->title, f->subtitle, width, ARES_MAX(height, legend), out);
    write_axes(f, &p, out);
    write_curves(f, &p, out);
    for (int i = 0; i < f->n_curves; i++)
        write_sample(&f->curves[i], i, LEFT + WIDTH + LEGEND_GAP, TOP + 12 + i * LEGEND_LINE, out);
    ares_str_add_z(out, "</svg>\n");
}

/* ---------------------------------------------------------------- pages */
enum {
    COLUMNS = 2,
    PANEL_WIDTH = 400,
    PANEL_HEIGHT = 230,
    PANEL_ACROSS = LEFT + PANEL_WIDTH + 8,
    PANEL_DOWN = 28 + PANEL_HEIGHT + BOTTOM + 8,
    PAGE_WIDTH = COLUMNS * PANEL_ACROSS + 24
};

/* Pixels of an entry of a legend and of the gap after it. */
static int sample_width(const figure_curve *c)
{
    return SAMPLE + 8 + (int)strlen(c->name) * CHARACTER + 14;
}

/* Writes the legend in rows from y on; returns where the panels may begin. */
static int write_page_legend(const figure_page *p, int y, ares_str *out)
{
    char place[96];
    int x = LEFT;
    snprintf(place, sizeof place, "x=\"%d\" y=\"%d\" font-weight=\"bold\"", x, y + 5);
    write_text(out, place, p->legend_title);
    x += (int)strlen(p->legend_title) * CHARACTER + 16;
    for (int i = 0; i < p->n_legend; i++) {
        int wide = sample_width(&p->legend[i]);
        if (x + wide > PAGE_WIDTH && x > LEFT) {
            x = LEFT;
            y += LEGEND_LINE;
        }
        write_sample(&p->legend[i], i, x, y, out);
        x += wide;
    }
    return y + LEGEND_LINE;
}

/* Panels in COLUMNS columns, row by row. */
void figure_write_page(const figure_page *p, ares_str *out)
{
    ares_str unused = { 0 };
    int top = TOP + 8 + write_page_legend(p, 0, &unused); /* only for its height */
    int rows = (p->n_panels + COLUMNS - 1) / COLUMNS;
    ares_str_fini(&unused);
    open_svg(p->title, p->subtitle, ARES_MAX(PAGE_WIDTH, text_width(p->title, p->subtitle)),
             top + rows * PANEL_DOWN, out);
    write_page_legend(p, TOP + 8, out);
    for (int i = 0; i < p->n_panels; i++) {
        const figure *f = &p->panels[i];
        char place[96];
        int left = LEFT + i % COLUMNS * PANEL_ACROSS, y = top + i / COLUMNS * PANEL_DOWN;
        plot frame = plot_of(f, left, y + 28, PANEL_WIDTH, PANEL_HEIGHT);
        snprintf(place, sizeof place, "x=\"%d\" y=\"%d\" font-weight=\"bold\"", left, y + 18);
        write_text(out, place, f->title);
        write_axes(f, &frame, out);
        write_curves(f, &frame, out);
        /* its own names stand beside the title, from the right */
        for (int k = f->n_curves, x = left + PANEL_WIDTH; k-- > 0 && f->own_legend;) {
            x -= sample_width(&f->curves[k]);
            write_sample(&f->curves[k], k, x, y + 13, out);
        }
    }
    ares_str_add_z(out, "</svg>\n");
}
