/// \file  One rendering of a template: statements and expressions over their tree.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/budget.h"
#include "jinja/parser.h"
#include "jinja/template.h"

namespace evenkeel::jinja {

/// Names of a template, of a macro, or of one turn of a loop; those around it are seen, not set.
class Scope {
 public:
  explicit Scope(const Scope* around = nullptr) : around_(around) {}
  /// Names are borrowed.
  void set(std::string_view name, Value value) { names_.insert_or_assign(name, std::move(value)); }
  const Value* find(std::string_view name) const {
    const auto found = names_.find(name);
    if (found != names_.end()) return &found->second;
    return around_ ? around_->find(name) : nullptr;
  }

 private:
  const Scope* around_;
  std::map<std::string_view, Value> names_;
};

class Renderer {
 public:
  Rendered run(const Syntax& syntax, const std::vector<std::pair<std::string, Value>>& variables);
  int line() const { return line_; }  ///< what was rendered last

 private:
  enum class Flow { kOn, kBreak, kContinue };
  class Deeper;
  using Body = std::vector<const Node*>;

  Flow body(const Body& nodes, Scope& scope);
  Flow statement(const Node& node, Scope& scope);
  Flow choose(const Node& node, Scope& scope);
  Flow loop(const Node& node, Scope& scope);
  std::vector<Value> loop_items(const Node& node, const Scope& scope);
  void assign(const Node& node, Scope& scope);
  void generation(const Node& node, const Scope& scope);
  std::string captured(const Body& nodes, Scope& scope);
  void write(std::string_view text);

  Value value(const Node& node, const Scope& scope);
  Value optional_value(const Node* node, const Scope& scope);
  std::vector<Value> values(const Node& node, const Scope& scope);
  Value dict(const Node& node, const Scope& scope);
  Value comparison(const Node& node, const Scope& scope);
  Value call(const Node& node, const Scope& scope);
  Value called_macro(const Node& macro, Arguments arguments);
  Value called_builtin(std::string_view name, Arguments& arguments);
  Value range(Arguments& arguments);
  Arguments arguments(const Node& node, const Scope& scope);

  Budget budget_;
  Scope root_;
  std::deque<Namespace> namespaces_;
  Rendered rendered_;
  std::string* out_ = &rendered_.text;
  int line_ = 1, depth_ = 0;
};

}  // namespace evenkeel::jinja
