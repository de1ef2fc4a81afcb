/// \file  Renders a template once, by walking its syntax tree.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/budget.h"
#include "jinja/rendered.h"
#include "jinja/syntax.h"

namespace evenkeel::jinja {

/// The names of a template, a macro or one iteration of a loop. Names of the enclosing scopes are visible, but set()
/// changes this scope only.
class Scope {
 public:
  explicit Scope(const Scope* around = nullptr) : around_(around) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  /// Sets a name. The name is borrowed and must outlive the scope.
  void set(std::string_view name, Value value) { names_.insert_or_assign(name, std::move(value)); }
  /// Returns the value of a name in this scope or the nearest enclosing one, or null.
  const Value* find(std::string_view name) const {
    const auto found = names_.find(name);
    if (found != names_.end()) return &found->second;
    return around_ ? around_->find(name) : nullptr;
  }
  /// Returns a link that expires with this scope.
  ScopeLink link() const {
    if (!link_) link_ = std::make_shared<const Scope* const>(this);
    return link_;
  }

 private:
  const Scope* around_;
  std::map<std::string_view, Value> names_;
  mutable std::shared_ptr<const Scope* const> link_;
};

/// A single rendering. Not thread-safe; use one object per rendering.
class Renderer {
 public:
  /// Renders the template. Call it once. The syntax and the variables are borrowed. \throws kData without origin and
  /// line, which Template::render() adds.
  Rendered run(const Syntax& syntax, const std::vector<std::pair<std::string, Value>>& variables);
  /// Returns the line of the statement that was rendered last.
  int line() const { return line_; }

 private:
  /// The way a statement ended: normally, or by break or continue.
  enum class Flow { kOn, kBreak, kContinue };
  /// Counts one level of recursion during its lifetime. \throws kData beyond kDeepest.
  class Deeper {
   public:
    explicit Deeper(Renderer& renderer) : renderer_(renderer) {
      renderer_.budget_.charge(1);
      EK_CHECK(++renderer_.depth_ <= kDeepest, kData, "nested deeper than ", kDeepest);
    }
    ~Deeper() { --renderer_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    static constexpr int kDeepest = 400;
    Renderer& renderer_;
  };
  // One function for each kind of statement and expression.
  using Body = std::vector<const Node*>;

  Flow body(const Body& nodes, Scope& scope);
  Flow statement(const Node& node, Scope& scope);
  Flow choose(const Node& node, Scope& scope);
  Flow loop(const Node& node, const Scope& scope, const Value& over, int recursion);
  std::vector<Value> loop_items(const Node& node, const Scope& scope, const Value& over);
  bool iterate(const Node& node, const Scope& scope, const std::shared_ptr<Loop>& state);  // true if there are items
  Value macro_in(const Node& node, const Scope& scope) const;
  void call_block(const Node& node, const Scope& scope);
  void assign(const Node& node, Scope& scope);
  void set_block(const Node& node, Scope& scope);
  void generation(const Node& node, const Scope& scope);
  /// Calls `write` and returns the text that it outputs, instead of adding it to the output.
  template <typename Write>
  std::string captured(Write&& write) {
    std::string text;
    auto* outer = std::exchange(out_, &text);
    write();
    out_ = outer;
    return text;
  }
  void write(std::string_view text);

  Value value(const Node& node, const Scope& scope);
  Value operation(const Node& node, const Scope& scope);
  Value optional_value(const Node* node, const Scope& scope);
  std::vector<Value> values(const Node& node, const Scope& scope);
  Value dict(const Node& node, const Scope& scope);
  Value comparison(const Node& node, const Scope& scope);
  Value call(const Node& node, const Scope& scope);
  Value name(const Node& node, const Scope& scope) const;
  Value subscript(const Node& node, const Scope& scope);
  Value sliced(const Node& node, const Scope& scope);
  Value filter(const Node& node, const Scope& scope);
  Value test(const Node& node, const Scope& scope);
  Value either(const Node& node, const Scope& scope);
  Value conditional(const Node& node, const Scope& scope);
  Value binary(const Node& node, const Scope& scope);
  Value called(const Node& callee, const Value& subject, Arguments given);
  Value called_macro(const Function& function, Arguments arguments);
  Value called_loop(const Loop& loop, Arguments& arguments);
  void give_extras(const Node& macro, Arguments& given, Scope& scope);
  Value called_builtin(std::string_view name, Arguments& arguments);
  Value range(Arguments& arguments);
  Arguments arguments(const Node& node, const Scope& scope);
  void add_named(const Value& more, Arguments& out);
  Value call_with(const Node& node, const Scope& scope, const Value* caller);

  Budget budget_;
  Scope root_;
  std::deque<Namespace> namespaces_;
  Rendered rendered_;
  std::string* out_ = &rendered_.text;
  int line_ = 1, depth_ = 0;
};

}  // namespace evenkeel::jinja
