// Implements calls: methods, macros, recursive loops and built-in functions.
#include <algorithm>

#include "jinja/date.h"
#include "jinja/operators.h"
#include "jinja/renderer.h"

namespace evenkeel::jinja {

Value Renderer::call(const Node& node, const Scope& scope) { return call_with(node, scope, nullptr); }

/// \param caller  the macro of a {% call %} block, or null
Value Renderer::call_with(const Node& node, const Scope& scope, const Value* caller) {
  const Node& callee = *node.children[0];
  const auto given_here = [&] {
    auto given = arguments(node, scope);
    if (caller) given.named.emplace_back("caller", *caller);
    line_ = node.line;
    return given;
  };
  if (callee.kind != NodeKind::kAttribute) return called(callee, value(callee, scope), given_here());
  const auto subject = value(*callee.children[0], scope);
  if (!subject.is_string() && !subject.is_dict()) return called(callee, attribute(subject, callee.text), given_here());
  auto given = given_here();
  return called_method(subject, callee.text, given, budget_);
}

Value Renderer::called(const Node& callee, const Value& subject, Arguments given) {
  if (const auto* loop = subject.as<std::shared_ptr<Loop>>()) return called_loop(**loop, given);
  const auto* function = subject.as<Function>();
  const std::string_view name = callee.text.empty() ? subject.kind() : std::string_view(callee.text);
  EK_CHECK(function || name != "strftime_now", kData,
           "strftime_now needs a date: give one by the key data.date or the flag --date");
  EK_CHECK(function, kData, "the function ", name, " is not part of the subset of Jinja that is read");
  if (function->macro) return called_macro(*function, std::move(given));
  if (!function->date) return called_builtin(function->name, given);
  auto text = function->date->formatted(given.text("format", function->name));
  given.finish(function->name);
  return budget_.text(std::move(text));
}

/// Calls a macro. Its body sees its parameters and the scope of its definition.
Value Renderer::called_macro(const Function& function, Arguments given) {
  const auto around = function.scope.lock();
  EK_CHECK(around, kData, "the macro ", function.name, " is called outside of what it was defined in");
  const Node& macro = *function.macro;
  Scope scope(*around);
  for (size_t i = 0; i < macro.names.size(); ++i) {
    const auto argument = given.take(macro.names[i]);
    const auto* otherwise = macro.children[i];
    scope.set(macro.names[i], argument    ? *argument
                              : otherwise ? value(*otherwise, scope)
                                          : Value::undefined(macro.names[i]));
  }
  give_extras(macro, given, scope);
  given.finish(concat("the macro ", macro.text));
  return budget_.text(captured([&] { body(macro.bodies[0], scope); }));
}

/// Defines caller, varargs and kwargs if the macro's body uses them.
void Renderer::give_extras(const Node& macro, Arguments& given, Scope& scope) {
  if (macro.extras & kCaller) {
    const auto found =
        std::find_if(given.named.begin(), given.named.end(), [](auto& one) { return one.first == "caller"; });
    scope.set("caller", found == given.named.end() ? Value::undefined("caller") : found->second);
    if (found != given.named.end()) given.named.erase(found);
  }
  if (macro.extras & kKwargs) {
    Dict named;
    for (auto& [name, argument] : given.named) named.put(Value::string(name), std::move(argument), budget_);
    given.named.clear();
    scope.set("kwargs", Value::dict_of(std::move(named.entries)));
  }
  if (macro.extras & kVarargs) {
    std::vector<Value> rest;
    for (; given.taken < given.placed.size(); ++given.taken) rest.push_back(given.placed[given.taken]);
    scope.set("varargs", Value::list(std::move(rest), SequenceType::kTuple));
  }
}

/// Calls a recursive loop, loop(items), and returns its output.
Value Renderer::called_loop(const Loop& state, Arguments& given) {
  const auto over = given.need("iterable", "loop");
  given.finish("loop");
  EK_CHECK(state.node, kData, "a loop is called that is not recursive, or is over");
  const Node& node = *state.node;
  const Scope& scope = *state.scope;
  const int recursion = state.recursion + 1;
  return budget_.text(captured([&] { loop(node, scope, over, recursion); }));
}

Value Renderer::range(Arguments& given) {
  const int64_t first = given.integer("start", "range").value_or(0);
  const auto second = given.integer("stop", "range");
  const int64_t step = given.integer("step", "range").value_or(1);
  EK_CHECK(step != 0, kData, "range with step 0");
  const int64_t begin = second ? first : 0, end = second.value_or(first);
  std::vector<Value> out;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    budget_.charge(1);
    out.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Value::list(std::move(out), SequenceType::kRange);
}

Value Renderer::called_builtin(std::string_view name, Arguments& given) {
  Value out;
  if (name == "raise_exception") fail(kData, "the chat template refuses: ", given.text("message", name));
  if (name == "range") {
    out = range(given);
  } else {
    Dict entries;
    if (const auto first = given.take("mapping")) {
      EK_CHECK(first->is_dict(), kData, name, " of ", first->kind(), ", expected a dict");
      entries.entries = first->entries().entries;
    }
    for (auto& [key, held] : given.named) entries.put(Value::string(key), std::move(held), budget_);
    given.named.clear();
    out = Value::dict_of(std::move(entries.entries));
    if (name == "namespace") out = Value(Value::Held(&namespaces_.emplace_back(Namespace{out.entries()})));
  }
  given.finish(name);
  return out;
}

}  // namespace evenkeel::jinja
