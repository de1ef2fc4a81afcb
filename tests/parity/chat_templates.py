"""Chat templates with the constructs of published model families, and one that uses every supported construct."""

# <|system|>, <|user|>, <|assistant|> on separate lines; answers end with eos, the last without a newline (OLMo, OLMoE).
LINES = """{{ bos_token }}{% for message in messages %}
{% if message['role'] == 'assistant' %}
{{- '<|assistant|>\n' + message['content'] + eos_token }}{% if not loop.last %}{{ '\n' }}{% endif %}
{% else %}
{{- '<|' + message['role'] + '|>\n' + message['content'] + '\n' }}{% endif %}
{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}
{% endfor %}"""

# Roles must alternate, and the system's text is part of the first question (Mixtral).
BRACKETS = """{%- if messages[0]["role"] == "system" %}{% set system = messages[0]["content"] %}{% set rest = messages[1:] %}
{%- else %}{% set rest = messages %}{% endif %}
{%- for message in rest %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("user and assistant have to take turns") }}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message["role"] == "user" %}
        {{- " [INST] " + (system + "\n\n" if loop.first and system is defined else "") + message["content"] + " [/INST]" }}
    {%- else %}
        {{- " " + message["content"] + eos_token }}
    {%- endif %}
{%- endfor %}"""

# Headers, and {% generation %} around the text of an assistant.
MARKED = """{%- for message in messages %}
    {%- if message.role == "assistant" %}
<|im_start|>assistant
{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}

    {%- else %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
    {%- endif %}
{{ "\n" }}
{%- endfor %}
{%- if add_generation_prompt %}
<|im_start|>assistant
{% endif %}"""

# Earlier answers lose the text before </think>, as in Qwen3.
FORGETFUL = """{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == "assistant" and not loop.last and "</think>" in content %}
        {%- set content = content.split("</think>")[-1].lstrip("\n") %}
    {%- endif %}
    {{- "<|im_start|>" + message.role + "\n" + content + "<|im_end|>\n" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\n" }}{% endif %}"""

# A generation prompt with an opening that conversations do not contain.
CROOKED = """{%- for message in messages %}{{ message.role ~ ": " ~ message.content ~ eos_token }}{% endfor %}
{%- if add_generation_prompt %}{{ "(" }}{% endif %}"""

SHAPES = {"lines": LINES, "brackets": BRACKETS, "marked": MARKED, "forgetful": FORGETFUL, "crooked": CROOKED}

PRELUDE = """{%- set x = 'Hello World' %}{% set n = 5 %}{% set f = 2.5 %}{% set l = [1, 2, 3] %}{% set e = '' %}{% set s = '  pad  ' %}
{%- set d = {'a': 1, 'b': [true, none]} %}{% set u = 'é你😀x' %}"""

EXPRESSIONS = r"""x|upper ## x ~ n ~ f ## l ## d ## d.b ## (1,2) ## (1,) ## () ## l[::-1] ## l[-1] ## l[5] ## x[1:3] ## u[1:3] ## u[::-1] ## u|length
## u|list|length ## x.split() ## x.split('o') ## x.split('o',1) ## '  a  b  '.split(none,1) ## x.startswith('H')
## x.startswith(('a','H')) ## s|trim ## s.strip()+'|' ## s.rstrip(' d')+'|' ## n+1*2**3 ## 7//2 ## -7//2 ## -7%3 ## 7%-3 ## 7/2 ## 1e16
## 1e15 ## 0.0001 ## 0.00001 ## 2**0.5 ## 1.0 ## n>3 and x or 'no' ## not n ## x is string ## x is not string ## n is number
## u is iterable ## d is mapping ## d is sequence ## zz is defined ## zz is undefined ## zz ## zz|length ## zz|default('dd')
## e|default('dd') ## e|default('dd',true) ## l|join(',') ## l|join ## [{'a':1},{'a':2}]|map(attribute='a')|list
## [{'a':1},{'b':2}]|map(attribute='a',default=7)|list ## l|map('string')|join('+') ## l|select('odd')|list ## l|reject('equalto',2)|list
## [{'r':'x','c':1},{'r':'y','c':2}]|selectattr('r','equalto','y')|list ## [{'r':'x','c':1},{'c':2}]|selectattr('r')|list|length
## [{'r':'x','c':1},{'c':2}]|rejectattr('r','defined')|map(attribute='c')|list ## l|first ## l|last ## []|first ## d|tojson
## d|tojson(indent=2) ## {}|tojson(indent=2) ## 'a"\n\té\u0001'|tojson ## d|items|list ## d.items()|list ## d.keys()|list ## d.values()|list
## d.get('zz') ## d.get('zz','q') ## d['zz'] ## d|dictsort ## n if x else 2 ## (n if e) ## 'ell' in x ## 2 in l ## 'a' in d
## 9 not in l ## 1 < 2 < 3 ## 1 < 3 < 2 ## l == [1,2,3] ## 1 == 1.0 ## true == 1 ## "a" 'b' ## ["it's", 'q"'] ## 'abc'|capitalize
## x|lower|replace('l','L') ## x.replace('l','L',1) ## range(1,7,2)|list ## range(3,0,-1)|list ## namespace(a=1).a ## dict(a=1)
## x.title() ## x|reverse ## l|reverse|list ## [1,1,2]|unique|list ## '5'|int + 1 ## 'x'|int ## f|int ## -3|abs ## (-3)|abs
## 'a\nb\n\nc'|indent ## 'a\nb'|indent(2,true) ## none ## x.zz ## x.zz is defined ## n is divisibleby 5 ## n is odd ## n is even
## x is eq 'Hello World' ## n is ge 5 ## n is in l ## none is none ## x.find('o') ## x.count('l') ## x.removeprefix('He')
## x.removesuffix('ld') ## x * 2 ## l + l ## l[0:2][1] ## l.0 ## x|trim('Hd') ## [1,[2,'x']]|string ## 1_000 ## +3 ## - n ## --n
## x ~ zz ## zz == none ## zz in l ## 'b' in zz ## "\x41\u00e9\q" ## x|length > 3 ## (x, n)|join('/') ## l|length - 1 ## l|tojson ## 1.5|tojson
## l[:-1] ## l[10:] ## l[-2:10] ## l[::2] ## l[2:0:-1] ## x[::-2] ## ''.join(['a','b']) ## true and false ## n != 5 ## f is float
## n is integer ## true is boolean ## true is true ## false is false ## x is sameas none ## range is callable ## x is ne 'y' ## n is lt 6""".split("##")

STATEMENTS = r"""
{% for i in l %}{{ i }}{% if not loop.last %},{% endif %}{% endfor %}
{% for i in [] %}x{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for i in l if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }}{{ loop.previtem }}{{ loop.nextitem is defined }}{% endfor %}
{% set y = 1 %}{% for i in l %}{% set y = y + i %}{{ y }} {% endfor %}{{ y }}
{% set ns = namespace(t=0) %}{% for i in l %}{% set ns.t = ns.t + i %}{% endfor %}{{ ns.t }}
{% for i in l %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}{% for i in l %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% macro m(a, b='z') %}[{{ a }}{{ b }}{{ x }}]{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}{{ m() }}
{% set q %}a{{ x }}b{% endset %}{{ q|upper }}{% set b, c = 2, 3 %}{{ b }}{{ c }}
  {%- if n %}
  b
  {%+ if n %}
 q{% endif %}
{# c #}
  {# d -#}
  x
  {%- endif +%}
{% raw %}{{ x }} {% if %}{% endraw %}|
  {% raw -%}  a  {%- endraw %}
  {{ x }}
 {{- x -}}
 z
{% for i in range(3) %}{% for j in range(2) %}{{ loop.index0 }}{{ loop.depth }}{{ i }}{% endfor %}{{ loop.revindex }}{% endfor %}
{% if zz is defined and zz %}A{% elif x == 'Hello World' %}B{% elif n %}C{% else %}D{% endif %}
{% macro r(n) %}{{ n }}{% if n > 0 %}{{ r(n-1) }}{% endif %}{% endmacro %}{{ r(3) }}
{% for c in u %}{{ c }}.{% endfor %}{% for i in l %}{% set k = loop %}{{ k.index }}{% endfor %}{{ i }}
{{ not x is string }}{{ x is string and n is number or zz }}{{ 1 if x is not defined else 2 }}{{ 'a' 'b' ~ 'c' + 'd' * 2 }}{{ 2 + 3 ~ 4 }}
{{ '{%' }}{{ "}}" }}{{ {'a':{'b':1}}['a']['b'] }}{{ messages | length }}{{ tools is none }}{{ documents }}{{ unk_token }}"""

EVERYTHING = PRELUDE + "".join(f"{i} {{{{ {one.strip()} }}}}\n" for i, one in enumerate(EXPRESSIONS)) + STATEMENTS

REFUSED = [("{% include 'x' %}", ["line 1", "include"]), ("\n{{ messages | wordcount }}", ["line 2", "wordcount"]),
           ("{{ messages is prime }}", ["prime"]), ("{{ strftime_now('%Y') }}", ["strftime_now"]), ("{{ cycler(1) }}", ["cycler"]),
           ("{{ 'a'.encode() }}", ["encode"]), ("{% for m in messages %}{{ loop([]) }}{% endfor %}", ["not recursive"]),
           ("{% if x %}", ["endif"]), ("{{ x", ["does not end"]), ("{{ ('a' | safe) | trim }}", ["safe"]), ("{{ range(99999999) | list }}", ["steps"]),
           ("{{ raise_exception('no system, please') }}", ["the chat template refuses: no system, please"])]
