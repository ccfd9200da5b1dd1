"""Small templates for scripts/golden/chat.py: the Jinja that chat templates use.

There is one template per line. An entry of EXPRESSIONS without {{ is an expression, which chat.py
puts into {{ }}. The templates may read the names in VARIABLES.
"""

VARIABLES = {
    "a": 7,
    "b": -3,
    "zero": 0,
    "f": 2.5,
    "whole": 1.0,
    "tiny": 1e-7,
    "huge": 1e22,
    "big": 9007199254740993,
    "neg": -0.0,
    "wide": 123456789012345678901234567890,
    "s": "Hello World",
    "t": "  padded\t\n",
    "e": "",
    "u": "žluťoučký kůň 日本 😀",
    "q": 'it\'s "quoted" \\ back',
    "n": "line1\nline2\r\nline3\n",
    "num": "42",
    "html": "<a href='x'>&</a>",
    "ws": "\u00a0\u2003x y\u3000\u200b",
    "multi": "a,b,,c",
    "nul": "a\u0000b",
    "esc": "\u0007\u001b\u007f\u0085\u00ad\u2028\ud7ff\ufeff\ufffd",
    "l": [3, 1, 2],
    "m": ["b", "A", "c", "a"],
    "mix": [1, "1", 1.0, True, None, [2], {"k": "v"}],
    "nest": [[1, 2], [3, 4], []],
    "el": [],
    "d": {"x": 1, "y": [1, 2], "z": {"w": "deep"}, "items": "shadow", "a b": 3},
    "ed": {},
    "none": None,
    "yes": True,
    "no": False,
    "users": [
        {"name": "bob", "age": 30, "tags": ["x"]},
        {"name": "Al", "age": 25, "tags": []},
        {"name": "cy", "age": 30, "tags": ["x", "y"]},
    ],
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yo"},
        {"role": "user", "content": "bye"},
    ],
    "tool": {
        "type": "function",
        "function": {
            "name": "get",
            "description": "gets <it> & more",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": [],
            },
        },
    },
}

EXPRESSIONS = r"""
1 + 2 * 3
(1 + 2) * 3
-2 ** 2
2 ** -1
2 ** 3 ** 2
2 ** 0.5
7 // 2
-7 // 2
7 // -2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
1 / 2
4 / 2
1 / 3
10 / 4 * 2
a / b
a // b
a % b
f * 2
f + a
whole
whole + 1
1.0
1.50
1e3
1e100
1e16
1e15
123456789.123
0.1 + 0.2
1e-5
0.0001
1_000_000
0x1F
0b101
0o17
1_0.5_0
5e-324
1.7976931348623157e308
1e308 * 10
big
big + 1
wide
wide + 1
2 ** 64
2 ** 100
9223372036854775807 + 1
-9223372036854775808
3000000000 * 4000000000
tiny
huge
neg
-0.0
-neg
+a
- a
--a
not a
not not a
1 / zero
1 // zero
1 % zero
1.0 / 0
f % 0.0
0 ** -1
'a' + 'b'
'a' ~ 'b' ~ 1
1 ~ 2 + 3
1 ~ 2 ~ 3
'a' * 3
3 * 'ab'
'a' * -1
[1] * 2
[1, 2] + [3]
'a' + 1
1 + 'a'
'a' - 'b'
s + none
none + s
'x' ~ none
'x' ~ true ~ 1.0
[1] + 'a'
{} + {}
true + 1
true + true
(1, 2) + (3,)
(1,)
()
(1, 'a', none)
1, 2
-'a'
1 == 1.0
1 == true
'1' == 1
none == false
[1, 2] == [1, 2.0]
{'a': 1} == {'a': 1}
(1, 2) == [1, 2]
1 != 2
1 < 2 < 3
1 < 3 < 2
3 > 2 > 1 == 1
1 == 1 == 1
1 < 'a'
'a' < 'b'
'a' < 'B'
[1, 2] < [1, 3]
none < 1
true < 2
'abc' >= 'abd'
'é' > 'z'
a in l
3 in l
3 not in l
'lo' in s
'' in s
'x' in d
'w' in d.z
1 in 'a1'
none in [none]
1.0 in [1]
'a' in none
1 in 5
not 1 in l
not (1 in l) and true
1 and 2
0 and 2
0 or 'x'
'' or none
none or false or 0
a and b or e
not e
yes and no
'a' if yes else 'b'
'a' if no else 'b'
'a' if no
('a' if no) ~ 'z'
'a' if no else 'b' if no else 'c'
(1 if yes else 2) + 1
s if s is defined else 'none'
none
true
True
None
False
true, false, none
[true, none, 1.5, 'x', "y'z", '"', "'\""]
[1, [2, [3]], {'a': (1, 2)}]
{'a': 1, 'b': {'c': none}}
{1: 2, none: 3, 1.5: 4, true: 5}
{'a': 1, 'a': 2}
{}
[]
['\n\t\\', 'é', '\x00', '\u2028', '😀']
esc
[esc]
[nul]
nul
[u]
[q]
mix
d
ed
el
users[0]
'\u00e9\x41\101\t|'
'a\
b'
"double \"inner\""
'it\'s'
'\q'
'adjacent' 'strings'
s[0]
s[-1]
s[20]
s[1:4]
s[:-1]
s[::-1]
s[::2]
s[-3:]
s[5:2]
s[100:]
s[:100]
s[-100:3]
s[8:2:-2]
s[::0]
u[0:3]
u[-1]
u[::-1]
u | length
l[0]
l[-1]
l[5]
l[1:]
l[::-1]
l[-2:]
l[:]
l['0']
l[1.0]
l[true]
nest[0][1]
nest[2][0]
(1, 2, 3)[1:]
d.x
d['x']
d.items
d['items']
d.y[1]
d.z.w
d['z']['w']
d['a b']
d.missing
d['missing']
d.missing.deeper
d[none]
d[l]
d.keys() | list
d.values() | list
d.get('x')
d.get('nope')
d.get('nope', 5)
ed.items() | list
d.z.items() | list
d.z.items()
d.z.keys()
s.nothing
s.nothing.more
nope
nope.x
nope['x']
nope()
nope + 1
nope ~ 'x'
nope == nope
nope == none
nope | length
nope | default('d')
nope | list
nope | upper
nope is defined
nope.x is defined
'x' in nope
nope in l
not nope
nope or 'fallback'
nope and 1
-nope
nope < 1
nope[0:1]
[nope]
{'k': nope}
[nope, 1] | length
none.x
none['x']
none[0]
none()
5.x
a.x
a[0]
a()
s()
s.upper()
s.lower()
s.title()
s.capitalize()
s.strip()
t.strip()
t.lstrip() ~ '|'
t.rstrip() ~ '|'
s.strip('Hd')
s.lstrip('He')
s.rstrip('dl')
'xxaxx'.strip('x')
ws.strip()
ws.split()
ws | trim
'\x1c\x1f a \x85'.strip()
'\u180e\u200b\ufeff a'.strip()
t | trim ~ '|'
'xxaxx' | trim('x')
s.split()
' a b c '.split(None, 1)
s.split(' ')
s.split('o', 1)
s.split('')
multi.split(',')
multi.split(',', 2)
multi.split(',', maxsplit=1)
t.split()
' a  b '.split(' ')
''.split()
''.split(',')
n.splitlines()
n.split('\n')
'a\x0bb\x0cc\x1cd\x85e\u2028f'.splitlines()
n.splitlines(true)
s.replace('o', '0')
s.replace('o', '0', 1)
s.replace('', '-')
s.replace('zz', 'y')
s.startswith('Hell')
s.startswith(('x', 'H'))
s.startswith('')
s.endswith('ld')
s.endswith(('x', 'd'))
s.find('o')
s.find('o', 5)
s.find('zz')
s.rfind('o')
s.index('W')
s.index('zz')
s.count('o')
s.count('')
'aaaa'.count('aa')
','.join(m)
''.join([])
','.join(l)
', '.join('abc')
'a-b'.removeprefix('a')
'a-b'.removesuffix('b')
'ß'.upper()
'İ'.lower() | length
'ŉ'.upper()
'ǆ'.title()
'ΑΣ'.lower()
'ﬃ'.capitalize()
'they\'re bill\'s'.title()
"they're bill's" | title
'HELLO wOrld' | capitalize
u.upper()
s.__class__
s._private
''.__class__.__mro__
d.__class__
l.append(4)
l.pop()
l.sort()
l.extend([1])
l.insert(0, 1)
l.remove(1)
l.reverse()
l.clear()
d.update({'q': 1})
d.pop('x')
d.setdefault('q', 1)
d.popitem()
l.index(2)
l.index(9)
l.count(1)
l.copy()
d.z.copy()
(1, 2, 1).count(1)
(1, 2).index(2)
l | length
s | length
d | length
e | length
none | length
a | length
l | count
s | upper
s | lower
'hello world-foo_bar' | title
none | upper
5 | upper
none | string
true | string | length
5 | string ~ 'x'
[1, 'a'] | string
num | int
num | int + 1
'4.7' | int
'abc' | int
'abc' | int(9)
'0x1F' | int(0, 16)
'101' | int(base=2)
none | int
f | int
-f | int
' 12 ' | int
'1_000' | int
'1e3' | int
'3.5' | float
'abc' | float
'abc' | float(1.5)
'1e3' | float
'inf' | float
'nan' | float
true | int
true | float
a | float
f | round
2.5 | round
3.5 | round
-2.5 | round
2.675 | round(2)
1234.567 | round(-2)
25 | round(-1)
35 | round(-1)
(-25) | round(-1)
2.1 | round(method='ceil')
2.9 | round(method='floor')
2.123 | round(2, 'ceil')
2.5 | round | int
a | round
b | abs
-2.5 | abs
l | first
l | last
el | first
el | last
s | first
s | last
d | first
l | sum
el | sum
users | sum(attribute='age')
l | sum(start=10)
l | max
l | min
el | max
m | max
m | max(case_sensitive=true)
users | max(attribute='age')
l | sort
l | sort(reverse=true)
m | sort
m | sort(case_sensitive=true)
users | sort(attribute='age') | map(attribute='name') | list
users | sort(attribute='age,name') | map(attribute='name') | list
[1, 'a'] | sort
s | sort | join
d.z | sort
l | reverse
l | reverse | list
s | reverse
m | unique | list
[1, 1.0, true, 2] | unique | list
m | unique(case_sensitive=true) | list
users | unique(attribute='age') | map(attribute='name') | list
l | join
l | join(', ')
m | join('-')
users | join(', ', attribute='name')
mix | join('|')
none | join
'abc' | join('.')
d | join(',')
l | list
s | list
d | list
none | list
5 | list
'ab' | list | tojson
d | items | list
ed | items | list
nope | items | list
l | items
d | dictsort
{'b': 1, 'A': 2, 'c': 0} | dictsort
{'b': 1, 'A': 2, 'c': 0} | dictsort(true)
{'b': 1, 'A': 2, 'c': 0} | dictsort(false, 'value')
{'b': 1, 'A': 2, 'c': 0} | dictsort(by='value', reverse=true)
{'b': 1, 'A': 2} | dictsort(by='nothing')
users | map(attribute='name') | list
users | map(attribute='name')
users | map(attribute='nope') | list
users | map(attribute='nope', default='?') | list
users | map(attribute='tags.0', default='-') | list
nest | map('length') | list
nest | map('first') | list
m | map('upper') | list
m | map('upper') | join(',')
l | map('string') | list
['1', '2'] | map('int') | sum
m | map('replace', 'a', 'z') | list
m | map('nofilter') | list
nest | map(attribute=0) | list
users | selectattr('age', 'equalto', 30) | map(attribute='name') | list
users | selectattr('age', '==', 30) | list | length
users | selectattr('age', 'gt', 26) | map(attribute='name') | join
users | selectattr('age', 'in', [25]) | map(attribute='name') | join
users | selectattr('tags') | map(attribute='name') | list
users | rejectattr('tags') | map(attribute='name') | list
users | selectattr('nope') | list
users | selectattr('nope', 'defined') | list
users | selectattr('name', 'undefined') | list
users | rejectattr('age', 'lt', 30) | map(attribute='name') | list
users | selectattr('age', 'notest') | list
l | select('odd') | list
l | select('greaterthan', 1) | list
l | reject('even') | list
l | reject('equalto', 1) | list
mix | select('string') | list
mix | select | list
mix | reject('none') | list
mix | select('mapping') | list
l | select('odd')
s | replace('o', '0')
s | replace('o', '0', 1)
5 | replace('5', '6')
n | indent
n | indent(2, true)
n | indent(width='> ')
'a\n\nb' | indent(2)
'a\n\nb' | indent(2, blank=true)
html | escape
html | e
html | safe
'a' | escape ~ '<b>'
s | default('x')
e | default('x')
e | default('x', true)
none | default('x')
none | default('x', true)
nope | default
nope | d('z')
nope.x | default('y')
d.nope | default('y')
d.nope.x | default('y')
0 | default(5, boolean=true)
s | nofilter
s | upper | lower | title
s | upper ~ 'x' | lower
(s ~ 'X') | lower
-1 | abs
- 1 | abs
2 ** 2 | string ~ 'x'
1 + 2 | string
'a' ~ 1 + 2 | abs
not s | length == 0
s | length > 3 and a | abs == 7
1 in l | sort
a | tojson
f | tojson
whole | tojson
big | tojson
wide | tojson
tiny | tojson
huge | tojson
neg | tojson
1e16 | tojson
1e400 | tojson
s | tojson
u | tojson
u | tojson(ensure_ascii=true)
q | tojson
nul | tojson
esc | tojson
esc | tojson(ensure_ascii=true)
html | tojson
'/' | tojson
none | tojson
true | tojson
mix | tojson
d | tojson
d | tojson(indent=2)
d | tojson(indent=4)
d | tojson(indent=0)
d | tojson(indent='--')
d | tojson(sort_keys=true)
{'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=true, indent=1)
d | tojson(separators=(',', ':'))
d | tojson(separators=[', ', ' = '], indent=2)
el | tojson
ed | tojson(indent=2)
[[], {}, [[]]] | tojson(indent=2)
(1, 2) | tojson
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
{(1, 2): 3} | tojson
nope | tojson
d.keys() | tojson
range(3) | tojson
l | map('string') | tojson
users | tojson
tool | tojson
tool | tojson(indent=2)
tool.function | tojson(true)
tool.function.parameters.properties | tojson(none, 2)
s | upper | tojson
[1.5, 1e-7, 1e22, -0.0, 100.0] | tojson
'\u2028\u007f' | tojson
namespace(a=1).a
namespace({'a': 1}, b=2).b
namespace().x is defined
namespace(a=1) | tojson
dict(a=1, b='x')
dict(d, x=5).x
range(5)
range(5) | list
range(2, 8, 3) | list
range(5, 0, -2) | list
range(0) | list
range(3) | length
range(10)[2:5] | list
range(5)[-1]
3 in range(5)
range(100001) | length
range(1, 2, 0)
raise_exception('boom')
raise_exception()
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y')
strftime_now('%A, %B %d, %Y %H:%M:%S %p %I %j %y %%')
strftime_now('%a %e %-d')
strftime_now('')
strftime_now() is defined
s is defined
s is undefined
nope is undefined
none is none
none is not none
nope is none
a is none
s is string
u is string
a is string
a is number
f is number
true is number
'5' is number
a is integer
whole is integer
true is integer
f is float
a is float
true is boolean
1 is boolean
true is true
1 is true
false is false
0 is false
d is mapping
l is mapping
l is sequence
s is sequence
d is sequence
range(3) is sequence
none is sequence
a is iterable
s is iterable
l is iterable
d is iterable
nope is iterable
none is iterable
l is iterable and l is not string
a is odd
b is odd
zero is even
f is odd
a is divisibleby 7
a is divisibleby(2)
a is divisibleby zero
1 is eq 1
1 is equalto 1.0
1 is ne 2
2 is gt 1
2 is ge(2)
1 is lt 2
1 is lessthan 2
2 is le 2
1 is in [1, 2]
'x' is in d
5 is not in l
namespace is callable
s is callable
s.upper is callable
a is sameas a
none is sameas none
s is notest
not s is string
s is not string
a is odd and b is odd
a is number == true
a + 1 is even
-1 is odd
[1] is eq [1]
a is not none and a > 5
d.x is defined and d.q is not defined
d.q is defined and d.q.r
s is defined and s | length > 3
1 if a is odd else 2
(a, b)
{'a': [1, {'b': (2,)}]}
[1, 2,]
{'a': 1,}
(1, 2,)
[*l]
l[0], l[1]
f(x
1 +
{{
'unterminated
a b
a = 1
lambda: 1
a if
[1, 2
1..2
.5
5.
1e
0x
09
007
'a'.'b'
a.1
nest.0.1
users.0.name
users[0]['name']
users[0].tags.0
users[-1].tags[-1]
d.y.0
s.0
d.
a !
a ? b : c
a && b
a || b
!a
a == b ==
a is
a | 
a |upper| lower
'a'|upper~'b'|upper
s[a:]
s[:b]
s[zero:f]
s['a':]
l[none:none]
l[none:2]
s[1,2]
d.x.y.z
messages[0].content
messages | map(attribute='role') | join(',')
messages[-1]['role'] == 'user' and messages | length == 3
messages[1:] | length
messages[::-1][0].content
messages | selectattr('role', 'equalto', 'user') | list | last
(messages | selectattr('role', '==', 'user') | first).content
messages[0] == messages[2]
messages[0].get('name', 'anon')
'name' in messages[0]
messages[0].name is defined
messages[0].content.strip().split(' ')[0][:1] | upper
tool.function.name ~ '(' ~ tool.function.parameters.properties.keys() | join(', ') ~ ')'
tool['function']['parameters']['required'] | default(['x'], true)
self is defined
self.title()
loop is defined
caller is defined
varargs is defined
true and not false or nope
1 == 1 and 2 == 2
(1 == 1) ~ ''
'a' in 'abc' in ['abc']
none ~ nope ~ ''
[none] ~ ''
"""

STATEMENTS = [
    # White space.
    "a\n",
    "a\n\n",
    "a\r\nb\r\n",
    "a\rb",
    "\n\na",
    "  a  ",
    "{{ 1 }}\n{{ 2 }}\n",
    "{{ 1 }}\n\n",
    "{{- 1 }} x",
    " x {{- 1 -}} y ",
    "x\n  {{- 1 -}}  \n y",
    "{{ 1 -}}\n\n\n{{ 2 }}",
    "{% if yes %}\na\n{% endif %}\nb",
    "  {% if yes %}\n  a\n  {% endif %}\nb",
    "x {% if yes %} y {% endif %} z",
    "\t{% if yes %}\ta\n\t{% endif %}\tb",
    "{%+ if yes %}a{% endif +%}\nb",
    "  {%+ if yes %}\na{%+ endif %}",
    "{% if yes -%}\n\n  a  \n\n{%- endif %}",
    "{%- if yes %}\n a\n{%- endif -%}\n\n b",
    "a\n  {%- if yes -%}  b  {%- endif -%}  \nc",
    "{% if yes %}\r\na\r\n{% endif %}\r\nb",
    "a {#- x -#} b",
    "a {# x #} b",
    "{# x #}\nb",
    "  {# x #}\n  b",
    "a\n  {# multi\n line #}\nb\n",
    "{#- a #}{{ 1 }}",
    "a{# {{ nope() }} {% bad %} #}b",
    "{{ 1 }} \n {{ 2 }}",
    "x{% set a = 1 %}\ny",
    "x{% set a = 1 +%}\ny",
    "x\n    {% set a = 1 %}  \ny",
    "   {{ 1 }}",
    "{% if yes %}{% endif %}\n\nx",
    "{% raw %}{{ x }}{% if %}{% endraw %}",
    "{% raw %}\n a {{ b }}\n{% endraw %}\nc",
    "a  {%- raw -%}  {{ x }}  {%- endraw -%}  b",
    "{% raw %}x",
    "{{ '{{' }} {{ '%}' }} {{ '#}' }}",
    "}} %} #}",
    "{ { % # }",
    '{{ "{% if %}" }}',
    "{{'a'}}{{-'b'-}}{{'c'}}",
    "a {{+ 1 }}",
    "{{ {'a': {'b': 1}}.a.b }}",
    "{{ {'a': {'b': 1}} }}",
    "{%if yes%}a{%endif%}",
    "{%-if yes-%}a{%-endif-%}",
    "{%\nif yes\n%}a{%\nendif\n%}",
    "{{\n1\n}}",
    "\u00a0\u2003{%- if yes %}a{% endif -%}\u3000b",
    "x\u00a0{%- set a = 1 -%}\u200by",
    "\u2003{% if yes %}a{% endif %}",
    "a\x0b{% if yes %}b{% endif %}",
    "é{{ 1 }}日{# ü #}😀",
    "{{ 1 }}\n{% if yes %}\n\n{% endif %}\n{{ 2 }}\n",
    "# for x in y\n## comment\n{{ 1 }}",
    "a\\nb",
    "{{ '\\n' }}",
    "{{ 'a\nb' }}",
    "{{ 'a\r\nb' | tojson }}",
    "line\n    {{ 1 }}\n  {% set b = 2 %}\n\tend",
    "{%- set x = 1 -%}{{ x }}\n{%- set x = 2 %}\n{{ x }}",
    # set, scopes, loops.
    "{% set x = 5 %}{{ x }}",
    "{% set x, y = 1, 2 %}{{ x }}{{ y }}",
    "{% set x, y = l %}{{ x }}",
    "{% set (x, y), z = (1, 2), 3 %}{{ x ~ y ~ z }}",
    "{% set x = [1, 2] %}{% set x = x + [3] %}{{ x }}",
    "{% set x %}block {{ a }}{% endset %}{{ x }}|{{ x | upper }}",
    "{% set x | upper %}abc{% endset %}{{ x }}",
    "{% set x | trim | replace('a', 'b') %} aaa {% endset %}[{{ x }}]",
    "{% set x = a %}{% set a = 1 %}{{ x ~ a }}",
    "{% set d.x = 5 %}{{ d }}",
    "{% set ns = namespace(x=1) %}{% set ns.x = 2 %}{{ ns.x }}",
    "{% set ns.x = 1 %}",
    "{% set nope.x = 1 %}",
    "{% set 5 = 1 %}",
    "{% set true = 1 %}",
    "{% set x = %}",
    "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a + ns.b }}",
    "{% set ns = namespace(x=1) %}{% set ns.x %}abc{% endset %}{{ ns.x }}",
    "{{ namespace(x=1) }}",
    "{% for x in l %}{{ x }}{% endfor %}",
    "{% for x in l %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for x in el %}{{ x }}{% else %}empty{% endfor %}",
    "{% for x in none %}{% endfor %}",
    "{% for x in nope %}x{% else %}none{% endfor %}",
    "{% for x in 5 %}{% endfor %}",
    "{% for c in s %}{{ c }}-{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}",
    "{% for k, v in d.z.items() %}{{ k }}={{ v }}{% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in l %}{% endfor %}",
    "{% for x, y in nest %}{{ x }}{% endfor %}",
    "{% for x, y in [[1, 2], [3, 4]] %}{{ x + y }} {% endfor %}",
    "{% for x, (y, z) in [(1, (2, 3))] %}{{ x ~ y ~ z }}{% endfor %}",
    "{% for k, v in d | items %}{{ k }}{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}:{{ x }} {% endfor %}",
    "{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}",
    "{% for u in users if u.tags %}{{ u.name }}{{ loop.length }}{{ loop.last }}{% endfor %}",
    (
        "{% for x in m %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
        "{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}"
    ),
    "{% for x in m %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in m %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for x in m %}{{ loop.cycle('o', 'e') }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
    (
        "{% for x in l %}{{ loop.depth }}{{ loop.depth0 }}{% for y in l %}{{ loop.depth }}"
        "{% endfor %} {% endfor %}"
    ),
    (
        "{% for x in nest %}{% set outer = loop %}{% for y in x %}{{ outer.index }}{{ loop.index }}"
        " {% endfor %}{% endfor %}"
    ),
    "{{ loop }}",
    "{% for x in l %}{{ loop }}{% endfor %}",
    "{% for x in l %}{{ loop.nothing }}{% endfor %}",
    "{% for x in range(3) %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 9 %}{% for x in range(3) %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(t=0) %}{% for i in l %}{% set ns.t = ns.t + i %}{% endfor %}{{ ns.t }}",
    "{% for i in l %}{% set y = i %}{% endfor %}{{ y }}",
    "{% if yes %}{% set y = 1 %}{% endif %}{{ y }}",
    "{% if no %}{% set y = 1 %}{% endif %}{{ y is defined }}",
    "{% if no %}{% set a = 1 %}{% endif %}{{ a }}",
    "{% for i in [1, 2] %}{{ z is defined }}{% set z = i %}{% endfor %}",
    "{% for i in [1, 2] %}{% if i == 1 %}{% set z = 'first' %}{% endif %}{{ z }};{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% break %}{% else %}never{% endfor %}",
    "{% break %}",
    (
        "{% for i in nest %}{% for j in i %}{% if j == 2 %}{% break %}{% endif %}{{ j }}"
        "{% endfor %};{% endfor %}"
    ),
    (
        "{% for i in range(10) if i % 2 %}{% if i > 6 %}{% break %}{% endif %}{{ i }}"
        "{{ loop.index }} {% endfor %}"
    ),
    "{% for m in messages[::-1] %}{{ m.content }}{% endfor %}",
    "{% for m in messages | reverse %}{{ m.content }}{% endfor %}",
    "{% for x in l | sort %}{{ x }}{% endfor %}",
    "{% for x in [3, 1] + [2] %}{{ x }}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in (a if no else l) %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for x in m %}{{ x }}{% endfor %}{{ x }}{% endfor %}",
    (
        "{% for n in [{'v': 1, 'c': [{'v': 2, 'c': []}]}] recursive %}{{ n.v }}{{ loop.depth }}"
        "{{ loop(n.c) }}{% endfor %}"
    ),
    "{% for x in l.append(1) %}{% endfor %}",
    "{% for x in l | map('string') %}{{ loop.index }}{{ loop.last }} {% endfor %}",
    "{% for x in l | select('odd') %}{{ loop.length }}{{ loop.revindex }}{% endfor %}",
    "{%- for x in l -%}\n  {{ x }}\n{%- endfor -%}",
    "{% for x in l %}\n{{ x }}\n{% endfor %}",
    "{% for x in l %}\n  {{ x }}\n  {% else %}\n none\n{% endfor %}\nend",
    "{% for x in 'a\u0301b' %}[{{ x }}]{% endfor %}",
    "{% for i in range(3) %}{{ a }}{% set a = i %}{{ a }} {% endfor %}{{ a }}",
    # if.
    "{% if a > 5 %}big{% elif a > 2 %}mid{% else %}small{% endif %}",
    (
        "{% if nope %}a{% elif e %}b{% elif el %}c{% elif ed %}d{% elif zero %}e{% elif 0.0 %}"
        "f{% else %}g{% endif %}"
    ),
    "{% if nope.x %}{% endif %}",
    "{% if nope is defined and nope.x %}a{% else %}b{% endif %}",
    "{% if not nope %}ok{% endif %}",
    "{% if 'x' %}{% if none %}a{% else %}b{% endif %}{% endif %}",
    "{% if a %}",
    "{% endif %}",
    "{% else %}",
    "{% if a %}{% endfor %}",
    "{% elif a %}",
    "{% if %}{% endif %}",
    "{% if a = 1 %}{% endif %}",
    "{% unknown %}",
    "{% if a %}{% else %}{% else %}{% endif %}",
    "{% if a == 7 and (b < 0 or nope) %}y{% endif %}",
    "{% if l %}{{ l | length }}{% endif %}",
    "{% if d.q is not defined %}q{% endif %}",
    "{% if messages[0].role == 'user' and messages[0]['content'] is string %}ok{% endif %}",
    "{% if range(0) %}a{% else %}b{% endif %}",
    "{% if l | select('gt', 5) %}generator is true{% endif %}",
    "{% if ' ' %}a{% endif %}",
    "{% if 1 if no %}a{% else %}b{% endif %}",
    # macros, calls, filters.
    (
        "{% macro m1(x, y=2) %}{{ x }}-{{ y }}{% endmacro %}{{ m1(1) }} {{ m1(1, 3) }}"
        " {{ m1(y=5, x=4) }}"
    ),
    "{% macro m1(x) %}[{{ x }}]{% endmacro %}{{ m1() }}",
    "{% macro m1(x) %}{{ x is defined }}{% endmacro %}{{ m1() }}",
    "{% macro m1(x) %}{% endmacro %}{{ m1(1, 2) }}",
    "{% macro m1(x) %}{% endmacro %}{{ m1(z=2) }}",
    "{% macro m1(x) %}{{ x }}{% endmacro %}{{ m1(1, x=2) }}",
    "{% macro m1() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m1(1, 2, k=3) }}",
    "{% macro m1(x) %}{{ a }}{{ x }}{% endmacro %}{{ m1(1) }}",
    "{% set z = 1 %}{% macro m1() %}{{ z }}{% endmacro %}{% set z = 2 %}{{ m1() }}",
    "{% macro m1() %}{% set z = 5 %}{{ z }}{% endmacro %}{{ m1() }}{{ z }}",
    "{% macro m1(n) %}{{ n }}{% if n > 0 %}{{ m1(n - 1) }}{% endif %}{% endmacro %}{{ m1(3) }}",
    "{% macro m1() %}\n  x\n{% endmacro %}\n[{{ m1() }}]",
    "{%- macro m1() -%}  x  {%- endmacro -%}[{{ m1() }}]",
    "{% macro m1(x, y=x) %}{{ y }}{% endmacro %}{{ m1(4) }}",
    "{% macro m1(x=[]) %}{{ x }}{% endmacro %}{{ m1() }}{{ m1([1]) }}",
    "{{ m1 is defined }}{% macro m1() %}{% endmacro %}{{ m1 is callable }}",
    (
        "{% macro m1() %}x{% endmacro %}{{ m1() | upper }}{{ m1() ~ m1() }}{{ m1() is string }}"
        "{{ m1() + 'y' }}{{ m1() | length }}{{ m1() | tojson }}"
    ),
    "{% macro m1() %}a{% endmacro %}{{ m1.name }}",
    "{% for i in [1, 2] %}{% macro m1() %}{{ i }}{% endmacro %}{{ m1() }}{% endfor %}",
    "{% for i in [1, 2] %}{{ m2(i) }}{% endfor %}{% macro m2(x) %}{{ x }}{% endmacro %}",
    "{% macro m1(x) %}{{ caller() }}{{ x }}{% endmacro %}{% call m1(1) %}body{% endcall %}",
    (
        "{% macro m1(x) %}{{ caller(x, 5) }}{% endmacro %}{% call(p, q) m1(1) %}{{ p + q }}"
        "{% endcall %}"
    ),
    "{% macro m1() %}{{ caller is defined }}{% endmacro %}{{ m1() }}",
    (
        "{% macro m1(ns) %}{% set ns.x = ns.x + 1 %}{% endmacro %}{% set c = namespace(x=0) %}"
        "{{ m1(c) }}{{ m1(c) }}{{ c.x }}"
    ),
    "{% macro m1(a, b=1, c) %}{% endmacro %}",
    "{% macro m1(x) %}{% for i in x %}{{ i }}{{ loop.index }}{% endfor %}{% endmacro %}{{ m1(l) }}",
    (
        "{% macro outer() %}{% macro inner() %}in{% endmacro %}{{ inner() }}{% endmacro %}"
        "{{ outer() }}"
    ),
    "{% macro m1(m) %}{{ m.content }}{% endmacro %}{% for x in messages %}{{ m1(x) }}{% endfor %}",
    "{% macro m1() %}{{ html }}{% endmacro %}{{ m1() }}",
    "{% macro m1(x, y) %}{{ x }}{{ y }}{% endmacro %}{{ m1(*l[:2]) }}{{ m1(**{'x': 1, 'y': 2}) }}",
    "{% macro m1() %}{{ loop is defined }}{% endmacro %}{% for i in l %}{{ m1() }}{% endfor %}",
    "{% filter upper %}abc {{ s }}{% endfilter %}",
    "{% filter trim | replace('a', 'b') %}  aaa  {% endfilter %}|",
    "{% filter indent(2) %}a\nb\n{% endfilter %}",
    "{% with x = 1, y = 2 %}{{ x + y }}{% endwith %}{{ x }}",
    "{% with %}{% set q1 = 1 %}{{ q1 }}{% endwith %}{{ q1 }}",
    "{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% generation %}abc{% endgeneration %}def",
    "{%- generation -%}  abc  {%- endgeneration -%}  def",
    "{% generation %}\n abc\n{% endgeneration %}\ndef",
    "{% for i in l %}{% generation %}{{ i }}{% endgeneration %}{% endfor %}",
    "{% generation %}{% set g1 = 5 %}{{ g1 }}{% endgeneration %}{{ g1 }}",
    "{% set g2 = 1 %}{% generation %}{{ g2 }}{% endgeneration %}",
    "{% generation %}",
    "{% endgeneration %}",
    "{% autoescape true %}{{ html }}{% endautoescape %}",
    "{% block b1 %}x{% endblock %}",
    "{% block b1 %}{{ a }}{% endblock b1 %}{{ self.b1() }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% do l %}",
    "{% trans %}x{% endtrans %}",
    # Sandbox, errors while running, limits of what is defined.
    "{% set x = l.append(5) %}{{ l }}",
    "{% set _ = d.update({'k': 1}) %}{{ d }}",
    "{% set x = [] %}{% set _ = x.append(1) %}{{ x }}",
    "{{ raise_exception('stop: ' ~ a) }}",
    "{% if yes %}{{ raise_exception('stop') }}{% endif %}",
    "{% if no %}{{ raise_exception('stop') }}{% endif %}fine",
    "{% for x in l %}{{ raise_exception('in loop') if x == 2 }}{% endfor %}",
    "{{ dict }}",
    "{{ range }}",
    "{{ namespace }}",
    "{{ s.upper }}",
    "{{ l | map('upper') }}",
    "{{ ''.join(['a', 1]) }}",
    "{{ (l | list).append }}",
    "{{ [].__len__() }}",
    "{{ a.__add__(1) }}",
    # As templates write them.
    (
        "{%- set ns = namespace(found=false) -%}{%- for m in messages -%}"
        "{%- if m.role == 'assistant' -%}{%- set ns.found = true -%}{%- endif -%}{%- endfor -%}"
        "{{ ns.found }}"
    ),
    (
        "{% for message in messages %}"
        "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('alternate') }}{% endif %}{{ message.content }}{% endfor %}"
    ),
    (
        "{% for message in messages %}"
        "{% if loop.index0 + 1 < messages | length and messages[loop.index0 + 1].role == "
        "'assistant' %}>{% endif %}{{ message.content }}{% endfor %}"
    ),
    (
        "{% for message in messages %}\n{% if message.role == 'user' %}\n{{ '<|user|>\n"
        "' + message.content }}\n{% elif message.role == 'assistant' %}\n{{ '<|assistant|>\n"
        "' + message.content }}\n{% endif %}\n{% if loop.last %}\n{{ '<|assistant|>' }}\n"
        "{% endif %}\n{% endfor %}"
    ),
    "{{ '<|im_start|>' ~ messages[0].role ~ '\\n' ~ messages[0].content | trim ~ '<|im_end|>' }}",
    (
        "{{- '<s>' }}\n{%- for m in messages %}\n    {{- '[' + m.role + '] ' -}}\n"
        "    {{ m.content -}}\n{%- endfor %}\n\n"
    ),
    (
        "{% set parts = ('<think>x</think>\\n\\nanswer').split('</think>') %}"
        "{{ parts[-1].lstrip('\\n') }}|{{ parts[0].split('<think>')[-1] }}"
    ),
    (
        "{%- for k, v in tool.function.items() if k != 'description' %}{{ k }}"
        ": {{ v if v is string else v | tojson }}{{ '; ' if not loop.last }}{%- endfor %}"
    ),
    (
        "{% set sys = messages | selectattr('role', 'equalto', 'system') | list %}{% if sys %}"
        "{{ sys[0].content }}{% else %}default{% endif %}"
    ),
    (
        "{% set content = messages[0].content %}{% if content is not string %}"
        "{{ content | tojson }}{% else %}{{ content }}{% endif %}"
    ),
    (
        "{{ (messages | selectattr('role', 'equalto', 'user') | list)[-1].content if messages else "
        "'' }}"
    ),
    "{{ messages | map(attribute='content') | map('length') | sum }}",
    (
        "{% set tools_list = [tool, tool] %}"
        "{{ tools_list | map(attribute='function') | map(attribute='name') | join(', ') }}"
    ),
    "{%- if tools is not none and tools is defined %}{{ tools }}{% endif %}",
    "{{ content | trim }} Think first.",
    "{%- set x = {'a': 1} %}{% set x = dict(x, **{'b': 2}) %}{{ x }}",
    (
        "{{ 'a' if messages[0].tool_calls else 'b' }}"
        "{{ messages[0].tool_calls | length if messages[0].tool_calls is defined }}"
    ),
]

# jinja2.Template without options: the dialect of format prompts.
PLAIN = [
    "{{ content }}",
    "{{ content | trim }}",
    "  {{ content | trim }}  \n",
    "{{ content | trim }} Let's think step by step.\n\nPut the answer in \\boxed{}.",
    "{% if content %}\nQ: {{ content }}\n{% endif %}\nA:",
    "  {% if content %}\n  Q\n  {% endif %}\n",
    "{%- if content -%}\n  Q\n{%- endif -%}\n x",
    "{{ content | upper }}{# note #}\n\n",
    "{{ content }}\n",
    "{{ content }}\r\nx\r\n",
    "{{ missing }}|",
    "{{ missing.x }}",
    "{{ content | replace('\n', ' ') }}",
    "{{ content[:5] }}",
    "{% raw %}{{ content }}{% endraw %}",
    "<think> {{ '<think>' }} \\boxed{} { content }",
    "{% for c in content.split() %}{{ loop.index }}.{{ c }} {% endfor %}",
    "{% set x = content | trim %}{{ x }}{{ x }}",
    "{{ content",
    "{% if %}",
    "{{ content | nofilter }}",
    "{{ content | tojson }}",
    "{{ {'a': '<b>&\\''} | tojson }}",
    "{% break %}",
    "{% generation %}{% endgeneration %}",
    "{{ raise_exception('x') }}",
    "{{ [1].append(2) }}",
    "{% set x = [1] %}{% set y = x.append(2) %}{{ x }}",
    "{{ content ~ 1 }}",
    "a\n  {# c #}\nb",
    "a\n  {% set x = 1 %}\nb",
]
PLAIN_CONTENT = ["  What is 7 + 5?\n", "", "<a> & 'b' \"c\" é\n日本 {{ x }} {% if %}"]
