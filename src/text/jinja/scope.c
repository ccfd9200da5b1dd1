/*
 * Names to slots. jinja2 decides at compile time, scope by scope, where each name comes from: it is
 * set by the scope, an alias of an outer name taken when the scope is entered, looked up in the
 * context, or undefined until set. These rules (jinja2/idtracking.py) decide whether a name that is
 * set later hides the context, what a branch that was not taken leaves, and what a macro sees, so
 * they are followed exactly.
 */
#include <string.h>

#include "jinja.h"

/* What a scope knows of a name. */
typedef struct symbol {
    ares_view name;
    int32_t slot;
    uint8_t how; /* jinja_how */
    bool stored; /* the scope sets it */
    struct symbol_ref {
        jinja_func *func;
        int32_t slot;
    } from;
} symbol;
typedef struct slot_name {
    ares_view name;
    int32_t slot;
} slot_name;
typedef struct slot_names {
    slot_name *items;
    int32_t n, cap;
} slot_names;
/* The names of one scope, and the scope around it. */
typedef struct symbols {
    struct symbols *parent;
    jinja_func *func;
    slot_names *slots; /* shared by the copies that branches make */
    symbol *items;
    int32_t n, cap;
} symbols;
typedef struct scope { /* what the statements of a body need to know */
    symbols *s;
    bool soft; /* inside an if: unknown filters fail when they are run */
    int loop;  /* inside a loop of this function */
} scope;

/* Names are searched one by one; this bounds the work of a hostile template. */
static void work(jinja_parser *p, int64_t n)
{
    p->work += n;
    if (p->work > 50000000) jinja_syntax_fail(p, ARES_ELIMIT, 0, "too many names");
}

/* func: the function whose activation holds the slots of the scope. */
static symbols *symbols_new(jinja_parser *p, symbols *parent, jinja_func *func)
{
    symbols *s = ares_arena_calloc(p->arena, 1, sizeof *s);
    s->parent = parent;
    s->func = func;
    s->slots = ares_arena_calloc(p->arena, 1, sizeof *s->slots);
    return s;
}

/* The name in this scope alone; NULL: it is not there. */
static symbol *find(jinja_parser *p, const symbols *s, ares_view name)
{
    work(p, s->n);
    for (int32_t i = 0; i < s->n; i++)
        if (ares_view_eq(s->items[i].name, name)) return &s->items[i];
    return NULL;
}

/* Finds the name in this scope or the nearest around it. */
static bool find_ref(jinja_parser *p, const symbols *s, ares_view name, struct symbol_ref *out)
{
    for (; s; s = s->parent) {
        symbol *y = find(p, s, name);
        if (y) return *out = (struct symbol_ref){ s->func, y->slot }, true;
    }
    return false;
}

/* The slot of a name in the function; branches of an if share it. */
static int32_t slot_of(jinja_parser *p, symbols *s, ares_view name)
{
    slot_names *v = s->slots;
    work(p, v->n);
    for (int32_t i = 0; i < v->n; i++)
        if (ares_view_eq(v->items[i].name, name)) return v->items[i].slot;
    if (v->n == v->cap) {
        int32_t cap = v->cap ? 2 * v->cap : 8;
        slot_name *items = ares_arena_alloc(p->arena, (size_t)cap * sizeof *items);
        if (v->n) memcpy(items, v->items, (size_t)v->n * sizeof *items);
        v->items = items, v->cap = cap;
    }
    v->items[v->n++] = (slot_name){ name, s->func->n_slots };
    return s->func->n_slots++;
}

/* Gives the name a slot, unless it has one, and says where its value comes from. */
static symbol *define(jinja_parser *p, symbols *s, ares_view name, jinja_how how)
{
    symbol *y = find(p, s, name);
    if (!y) {
        if (s->n == s->cap) {
            int32_t cap = s->cap ? 2 * s->cap : 8;
            symbol *items = ares_arena_alloc(p->arena, (size_t)cap * sizeof *items);
            if (s->n) memcpy(items, s->items, (size_t)s->n * sizeof *items);
            s->items = items, s->cap = cap;
        }
        y = &s->items[s->n++];
        *y = (symbol){ .name = name, .slot = slot_of(p, s, name) };
    }
    y->how = (uint8_t)how;
    return y;
}

/* The scope reads the name. */
static void load(jinja_parser *p, symbols *s, ares_view name)
{
    struct symbol_ref ref;
    if (!find_ref(p, s, name, &ref)) define(p, s, name, JLOAD_RESOLVE);
}

/* The scope sets the name: until it does, the outer variable of this name shows through. */
static void store(jinja_parser *p, symbols *s, ares_view name)
{
    symbol *y = find(p, s, name);
    if (!y) {
        struct symbol_ref outer;
        /* an outer variable of this name, as it is when the scope is entered */
        bool has = s->parent && find_ref(p, s->parent, name, &outer);
        y = define(p, s, name, has ? JLOAD_ALIAS : JLOAD_UNDEFINED);
        if (has) y->from = outer;
    }
    y->stored = true;
}

/* The scope opens with the name set: a parameter, a loop variable. Returns its slot. */
static int32_t declare(jinja_parser *p, symbols *s, ares_view name)
{
    symbol *y = define(p, s, name, JLOAD_PARAM);
    y->stored = true;
    return y->slot;
}

/* A branch of an if starts with what the scope knows before it. */
static symbols copy_of(jinja_parser *p, const symbols *s)
{
    symbols c = *s;
    work(p, s->n);
    c.cap = s->n + 4;
    c.items = ares_arena_alloc(p->arena, (size_t)c.cap * sizeof *c.items);
    if (s->n) memcpy(c.items, s->items, (size_t)s->n * sizeof *c.items);
    return c;
}

/*
 * The symbols after an if: a name that only some of its branches store is an alias or looked up
 * when the scope is entered.
 */
static void merge(jinja_parser *p, symbols *s, symbols *branches, int n)
{
    symbols before = copy_of(p, s);
    /* all that any of the branches mentions */
    for (int b = 0; b < n; b++)
        for (int32_t i = 0; i < branches[b].n; i++) {
            symbol *from = &branches[b].items[i], *y = define(p, s, from->name, from->how);
            y->from = from->from;
            y->stored |= from->stored;
        }
    for (int32_t i = 0; i < s->n; i++) {
        symbol *y = &s->items[i], *old = find(p, &before, y->name);
        /* set before the if, or by no branch: nothing changes */
        if (!y->stored || (old && old->stored)) continue;
        struct symbol_ref outer;
        if (s->parent && find_ref(p, s->parent, y->name, &outer))
            y->how = JLOAD_ALIAS, y->from = outer;
        else y->how = JLOAD_RESOLVE;
    }
}

/* ---------------- which names a scope mentions */
static void visit(jinja_parser *p, symbols *s, const jinja_node *n);

/* In order: the first mention of a name decides what it is. */
static void visit_all(jinja_parser *p, symbols *s, const jinja_nodes *list)
{
    for (int32_t i = 0; i < list->n; i++) visit(p, s, list->items[i]);
}

/* of a loop or with: parameters */
static void visit_target(jinja_parser *p, symbols *s, const jinja_node *n)
{
    if (n->kind == JN_NAME) declare(p, s, n->name);
    else if (n->kind == JN_TUPLE)
        for (int32_t i = 0; i < n->items.n; i++) visit_target(p, s, n->items.items[i]);
}

static void visit(jinja_parser *p, symbols *s, const jinja_node *n)
{
    if (!n) return;
    work(p, 1);
    if (++p->nest > JINJA_TREE_DEPTH)
        jinja_syntax_fail(p, ARES_ELIMIT, n->pos, "expression or block too deep");
    switch (n->kind) {
    case JN_NAME:
        /* flag: the name is assigned here */
        if (n->flag) store(p, s, n->name);
        else load(p, s, n->name);
        break;
    case JN_NSREF: load(p, s, n->name); break;
    case JN_IF: {
        visit(p, s, n->a);
        /* then, elif and else, each as if it alone were run */
        symbols branches[3];
        for (int b = 0; b < 3; b++) {
            branches[b] = copy_of(p, s);
            visit_all(p, &branches[b], b == 0 ? &n->body : b == 1 ? &n->items : &n->orelse);
        }
        merge(p, s, branches, 3);
        break;
    }
    case JN_MACRO: store(p, s, n->name); break;
    case JN_SET:
        visit(p, s, n->b);
        visit(p, s, n->a);
        break;
    /* their bodies are scopes of their own */
    case JN_SETBLOCK: visit(p, s, n->a); break;
    case JN_FOR: visit(p, s, n->b); break;
    case JN_CALLBLOCK:
    case JN_FILTERBLOCK: visit(p, s, n->a); break;
    case JN_WITH: visit_all(p, s, &n->more); break;
    case JN_GENERATION: break;
    default:
        visit(p, s, n->a), visit(p, s, n->b), visit(p, s, n->c);
        visit_all(p, s, &n->items), visit_all(p, s, &n->more);
        visit(p, s, n->dyn_args), visit(p, s, n->dyn_kwargs);
    }
    p->nest--;
}

/* Which names some statements read before they set them, walked in jinja2's order. */
typedef struct search {
    ares_view names[3];
    bool gone[3], found[3];
    int n;
} search;

static void search_in(jinja_parser *p, search *q, const jinja_node *n);
static void search_all(jinja_parser *p, search *q, const jinja_nodes *list)
{
    for (int32_t i = 0; i < list->n; i++) search_in(p, q, list->items[i]);
}

static void search_in(jinja_parser *p, search *q, const jinja_node *n)
{
    if (!n) return;
    work(p, 1);
    if (++p->nest > JINJA_TREE_DEPTH)
        jinja_syntax_fail(p, ARES_ELIMIT, n->pos, "expression or block too deep");
    if (n->kind == JN_NAME) {
        for (int i = 0; i < q->n; i++)
            if (ares_view_eq(n->name, q->names[i])) {
                /* set first: what is read later is that value */
                if (n->flag) q->gone[i] = true;
                else if (!q->gone[i]) q->found[i] = true;
            }
    } else {
        bool macro = n->kind == JN_MACRO, with = n->kind == JN_WITH, branch = n->kind == JN_IF;
        /* the name of a macro is no use of it */
        if (!macro) search_in(p, q, n->a), search_in(p, q, n->b);
        if (n->kind != JN_FOR) search_in(p, q, n->c);
        if (!branch) search_all(p, q, &n->items);
        if (!with || n->more.n) search_all(p, q, &n->more);
        /* arguments before the body, as jinja2 orders the children of a node */
        search_in(p, q, n->dyn_args), search_in(p, q, n->dyn_kwargs);
        search_all(p, q, &n->body);
        if (branch) search_all(p, q, &n->items);
        search_all(p, q, &n->orelse);
        /* the test of a loop comes last there */
        if (n->kind == JN_FOR) search_in(p, q, n->c);
    }
    p->nest--;
}

/* ---------------- the second walk: every name gets its slot */
static void bind_all(jinja_parser *p, scope x, jinja_nodes *list);
static void bind(jinja_parser *p, scope x, jinja_node *n);

/* How many functions outward `to` is. */
static int32_t hops(jinja_parser *p, const jinja_func *from, const jinja_func *to)
{
    int32_t up = 0;
    for (; from && from != to; from = from->up) up++, work(p, 1);
    ARES_ASSERT(from);
    return up;
}

/* Gives a name its place: functions outward and slot. */
static void bind_name(jinja_parser *p, symbols *s, jinja_node *n)
{
    struct symbol_ref ref;
    if (!find_ref(p, s, n->name, &ref))
        jinja_syntax_fail(p, ARES_EFORMAT, n->pos, "'%.*s' is not known here",
                          (int)ARES_MIN(n->name.len, 80), n->name.data);
    n->up = hops(p, s->func, ref.func);
    n->slot = ref.slot;
}

/* What the evaluator sets when the scope is entered. */
static jinja_frame frame_of(jinja_parser *p, symbols *s)
{
    /* one entry per name that the scope mentions */
    jinja_frame f = { ares_arena_calloc(p->arena, (size_t)s->n + 1, sizeof *f.loads), s->n };
    for (int32_t i = 0; i < s->n; i++) {
        symbol *y = &s->items[i];
        f.loads[i] = (jinja_load){ .slot = y->slot, .how = y->how, .name = y->name };
        if (y->how == JLOAD_ALIAS)
            f.loads[i].up = hops(p, s->func, y->from.func), f.loads[i].from = y->from.slot;
    }
    return f;
}

/* up: the function around it, whose variables it may read. */
static jinja_func *func_new(jinja_parser *p, jinja_func *up)
{
    jinja_func *f = ares_arena_calloc(p->arena, 1, sizeof *f);
    f->up = up;
    return f;
}

/* The target of a loop, again for the scope of its test, where its names have other slots. */
static jinja_node *clone_target(jinja_parser *p, const jinja_node *n)
{
    jinja_node *c = ares_arena_alloc(p->arena, sizeof *c);
    *c = *n;
    if (n->kind == JN_TUPLE) {
        c->items.items =
            ares_arena_alloc(p->arena, (size_t)n->items.n * sizeof *c->items.items + 1);
        c->items.cap = n->items.n;
        for (int32_t i = 0; i < n->items.n; i++)
            c->items.items[i] = clone_target(p, n->items.items[i]);
    }
    return c;
}

/* jinja2 looks at the whole statement, body included. */
static void refuse_loop_target(jinja_parser *p, const jinja_node *n)
{
    if (!n) return;
    work(p, 1);
    if (n->kind == JN_NAME && n->flag && ares_view_is(n->name, "loop"))
        jinja_syntax_fail(p, ARES_EFORMAT, n->pos,
                          "Can't assign to special loop variable in for-loop target");
    refuse_loop_target(p, n->a), refuse_loop_target(p, n->b), refuse_loop_target(p, n->c);
    const jinja_nodes *lists[] = { &n->items, &n->more, &n->body, &n->orelse };
    for (int k = 0; k < ARES_COUNT(lists); k++)
        for (int32_t i = 0; i < lists[k]->n; i++) refuse_loop_target(p, lists[k]->items[i]);
}

/* A loop has three scopes: body, else, and the test, which is a function of its own. */
static void bind_for(jinja_parser *p, scope x, jinja_node *n)
{
    refuse_loop_target(p, n);
    jinja_func *func = n->flag ? (n->func = func_new(p, x.s->func)) : x.s->func;
    symbols *body = symbols_new(p, x.s, func), *orelse = symbols_new(p, x.s, func);
    search q = { .names = { ARES_VIEW("loop") }, .n = 1 };
    search_all(p, &q, &n->body);
    /* made only where the body reads it; a recursive loop is called by it */
    if (n->flag || q.found[0]) n->loop_slot = declare(p, body, ARES_VIEW("loop"));
    visit_target(p, body, n->a);
    visit_all(p, body, &n->body);
    /* the test runs before the body, with the target as its own variable */
    if (n->c) {
        n->test_func = func_new(p, x.s->func);
        symbols *test = symbols_new(p, x.s, n->test_func);
        visit_target(p, test, n->a);
        visit(p, test, n->c);
        /* d: the target in the scope of the test */
        n->d = clone_target(p, n->a);
        n->test_frame = frame_of(p, test);
        bind(p, (scope){ .s = test }, n->d);
        bind(p, (scope){ .s = test }, n->c);
    }
    bind(p, x, n->b);
    n->frame = frame_of(p, body);
    scope inner = { .s = body, .loop = 1 };
    bind(p, inner, n->a);
    bind_all(p, inner, &n->body);
    if (n->orelse.n) {
        visit_all(p, orelse, &n->orelse);
        n->else_frame = frame_of(p, orelse);
        bind_all(p, (scope){ .s = orelse, .loop = n->flag ? 0 : x.loop }, &n->orelse);
    }
}

/*
 * A macro, a call block and a generation block are functions. `caller`, kwargs and varargs exist in
 * them only where the body reads them.
 */
static void bind_macro(jinja_parser *p, scope x, jinja_node *n)
{
    n->func = func_new(p, x.s->func);
    symbols *s = symbols_new(p, x.s, n->func);
    search q = { .names = { ARES_VIEW("caller"), ARES_VIEW("kwargs"), ARES_VIEW("varargs") },
                 .n = 3 };
    search_all(p, &q, &n->body);
    /* a parameter of that name hides the special variable */
    bool declared[3] = { false };
    int32_t explicit_caller = -1;
    for (int32_t i = 0; i < n->items.n; i++) {
        declare(p, s, n->items.items[i]->name);
        for (int k = 0; k < 3; k++)
            if (ares_view_eq(n->items.items[i]->name, q.names[k])) {
                declared[k] = true;
                if (k == 0) explicit_caller = i;
            }
    }
    /* the defaults may name parameters */
    visit_all(p, s, &n->more);
    visit_all(p, s, &n->body);
    if (q.found[0] && explicit_caller >= 0 && explicit_caller < n->items.n - n->more.n)
        jinja_syntax_fail(p, ARES_EFORMAT, n->pos,
                          "the special \"caller\" argument must be omitted or be given a default");
    n->op = q.found[0]; /* the macro reads `caller` */
    if (q.found[0] && explicit_caller < 0) n->caller_slot = declare(p, s, q.names[0]);
    if (q.found[1] && !declared[1]) n->kwargs_slot = declare(p, s, q.names[1]);
    if (q.found[2] && !declared[2]) n->varargs_slot = declare(p, s, q.names[2]);
    n->frame = frame_of(p, s);
    scope inner = { .s = s };
    for (int32_t i = 0; i < n->items.n; i++) bind_name(p, s, n->items.items[i]);
    for (int32_t i = 0; i < n->more.n; i++) bind(p, inner, n->more.items[i]);
    bind_all(p, inner, &n->body);
}

/* A set, filter or with block: its own scope in the same function. */
static symbols *bind_scope(jinja_parser *p, scope x, jinja_node *n)
{
    symbols *s = symbols_new(p, x.s, x.s->func);
    if (n->kind == JN_WITH)
        for (int32_t i = 0; i < n->items.n; i++) visit_target(p, s, n->items.items[i]);
    visit_all(p, s, &n->body);
    if (n->kind == JN_FILTERBLOCK) visit(p, s, n->a);
    n->frame = frame_of(p, s);
    bind_all(p, (scope){ .s = s, .loop = x.loop }, &n->body);
    return s;
}

static void bind(jinja_parser *p, scope x, jinja_node *n)
{
    if (!n) return;
    work(p, 1);
    if (++p->nest > JINJA_TREE_DEPTH)
        jinja_syntax_fail(p, ARES_ELIMIT, n->pos, "expression or block too deep");
    /* jinja2 fails for unknown filters in a branch only when it is run */
    scope soft = x;
    soft.soft = true;
    switch (n->kind) {
    case JN_NAME:
    case JN_NSREF: bind_name(p, x.s, n); break;
    case JN_COND: bind(p, soft, n->a), bind(p, soft, n->b), bind(p, soft, n->c); break;
    case JN_IF:
        bind(p, soft, n->a);
        bind_all(p, soft, &n->body), bind_all(p, soft, &n->items), bind_all(p, soft, &n->orelse);
        break;
    case JN_FOR: bind_for(p, x, n); break;
    case JN_MACRO:
        bind_macro(p, x, n);
        bind_name(p, x.s, n->a);
        break;
    case JN_CALLBLOCK:
        bind_macro(p, x, n);
        bind(p, x, n->a);
        break;
    case JN_GENERATION: bind_macro(p, x, n); break;
    case JN_FILTERBLOCK: {
        symbols *s = bind_scope(p, x, n);
        bind(p, (scope){ .s = s, .loop = x.loop }, n->a);
        break;
    }
    case JN_SETBLOCK: {
        symbols *s = bind_scope(p, x, n);
        bind(p, (scope){ .s = s, .loop = x.loop }, n->b);
        bind(p, x, n->a);
        break;
    }
    case JN_WITH: {
        symbols *s = bind_scope(p, x, n);
        for (int32_t i = 0; i < n->items.n; i++) bind(p, (scope){ .s = s }, n->items.items[i]);
        bind_all(p, x, &n->more);
        break;
    }
    case JN_BREAK:
    case JN_CONTINUE:
        if (!x.loop)
            jinja_syntax_fail(p, ARES_EFORMAT, n->pos, "'%s' outside loop",
                              n->kind == JN_BREAK ? "break" : "continue");
        break;
    default:
        if (n->kind == JN_FILTER || n->kind == JN_TEST) {
            bool filter = n->kind == JN_FILTER;
            n->builtin =
                filter ? jinja_find_filter(n->name, p->t->dialect) : jinja_find_test(n->name);
            /* a misspelling fails at once, unless a branch guards it */
            if (!n->builtin && !x.soft)
                jinja_syntax_fail(p, ARES_EFORMAT, n->pos, "No %s named '%.*s'",
                                  filter ? "filter" : "test", (int)ARES_MIN(n->name.len, 80),
                                  n->name.data);
        }
        bind(p, x, n->a), bind(p, x, n->b), bind(p, x, n->c);
        bind_all(p, x, &n->items), bind_all(p, x, &n->more);
        bind(p, x, n->dyn_args), bind(p, x, n->dyn_kwargs);
    }
    p->nest--;
}

static void bind_all(jinja_parser *p, scope x, jinja_nodes *list)
{
    for (int32_t i = 0; i < list->n; i++) bind(p, x, list->items[i]);
}

void jinja_resolve(jinja_parser *p)
{
    p->nest = 0;
    /* the template's blocks; it hides a variable of that name */
    search q = { .names = { ARES_VIEW("self") }, .n = 1 };
    search_all(p, &q, &p->t->body);
    if (q.found[0])
        jinja_syntax_fail(p, ARES_EUNSUPPORTED, 0, "the variable 'self' is not supported");
    symbols *root = symbols_new(p, NULL, &p->t->func);
    visit_all(p, root, &p->t->body);
    p->t->frame = frame_of(p, root);
    bind_all(p, (scope){ .s = root }, &p->t->body);
}
