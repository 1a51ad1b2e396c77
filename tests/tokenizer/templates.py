"""Chat templates in the shape of well-known models', as their model cards describe them."""

SYSTEM_QWEN25 = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

_QWEN_TOOLS = r"""
{%- macro signatures(tools) -%}
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{%- for tool in tools %}{{ '\n' }}{{ tool | tojson }}{% endfor %}
{{ '\n</tools>' }}

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>
{%- endmacro %}
"""

_QWEN_CALLS = r"""
{%- macro calls(message) %}
    {%- for call in message.tool_calls or [] %}
        {%- if message.content or not loop.first %}{{ '\n' }}{% endif %}
        {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
        {{- '}\n</tool_call>' }}
    {%- endfor %}
{%- endmacro %}
{%- macro response(messages, index) %}
    {%- if index == 0 or messages[index - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
    {{- '\n<tool_response>\n' + messages[index].content + '\n</tool_response>' }}
    {%- if index + 1 == messages | length or messages[index + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}
{%- endmacro %}
"""

QWEN25 = (
    _QWEN_TOOLS
    + _QWEN_CALLS
    + r"""
{%- set given = messages[0].role == 'system' %}
{{- '<|im_start|>system\n' + (messages[0].content if given else '"""
    + SYSTEM_QWEN25
    + r"""') }}
{%- if tools %}{{ '\n\n' + signatures(tools) }}{% endif %}
{{- '<|im_end|>\n' }}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- response(messages, loop.index0) }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' + message.content + calls(message) + '<|im_end|>\n' }}
    {%- elif not (loop.first and given) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
"""
)

# Thinking of turns before the last user's message is stripped, so a longer conversation changes what stood before.
QWEN3 = (
    _QWEN_TOOLS
    + _QWEN_CALLS
    + r"""
{%- set given = messages[0].role == 'system' %}
{%- if given or tools %}
    {{- '<|im_start|>system\n' + (messages[0].content if given else '') + ('\n\n' if given and tools else '') }}
    {%- if tools %}{{ signatures(tools) }}{% endif %}
    {{- '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}{% if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- response(messages, loop.index0) }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
        {%- set thought = message.reasoning_content or '' %}
        {{- '<|im_start|>assistant\n' }}
        {%- if thought and loop.index0 > ns.last %}{{ '<think>\n' + thought.strip('\n') + '\n</think>\n\n' }}{% endif %}
        {{- content + calls(message) + '<|im_end|>\n' }}
    {%- elif not (loop.first and given) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
"""
)

# Keeps all thinking where it was.
THINKING = QWEN3.replace("if thought and loop.index0 > ns.last", "if thought")

LLAMA31 = r"""
{{- bos_token }}
{%- set given = messages[0].role == 'system' %}
{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}
{%- if tools is not none %}{{ 'Environment: ipython\n' }}{% endif %}
{{- 'Cutting Knowledge Date: December 2023\nToday Date: ' + date_string + '\n\n' }}
{%- if tools is not none and not tools_in_user_message %}
    {{- 'You have access to the following functions. To call a function, please respond with JSON for a function call.' }}
    {{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}
    {{- 'Do not use variables.\n\n' }}
    {%- for tool in tools %}{{ tool | tojson(indent=4) }}{{ '\n\n' }}{% endfor %}
{%- endif %}
{{- (messages[0].content | trim if given else '') + '<|eot_id|>' }}
{%- for message in messages[1 if given else 0:] %}
    {%- set role = 'ipython' if message.role == 'tool' else message.role %}
    {{- '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}
    {%- if message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}{{ raise_exception('one call at once') }}{% endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}' }}
    {%- elif message.role == 'tool' %}
        {{- message.content | tojson }}
    {%- else %}
        {{- message.content | trim }}
    {%- endif %}
    {{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}
"""

LLAMA3 = r"""
{%- for message in messages %}
    {{- bos_token if loop.first else '' }}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}
"""

CHATML_DEFAULT = "You are a helpful AI assistant."
CHATML = (
    r"""{% if messages[0].role != 'system' %}{{ '<|im_start|>system\n"""
    + CHATML_DEFAULT
    + r"""<|im_end|>\n' }}{% endif %}{% for message in messages %}"""
    r"""{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}"""
    r"""{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
)
