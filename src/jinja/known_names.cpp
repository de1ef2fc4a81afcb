#include "jinja/known_names.h"

#include <utility>
#include <vector>

#include "base/plain/error.h"

namespace evenkeel::jinja {
namespace {

/// All filters of Jinja 3.1, including those that are not supported.
constexpr std::string_view
    kJinjasFilters =
        " abs attr batch capitalize center count d default dictsort e escape filesizeformat first float "
        "forceescape format groupby indent int items join last length list lower map max min pprint random reject "
        "rejectattr replace reverse round safe select selectattr slice sort string striptags sum title tojson trim "
        "truncate unique upper urlencode urlize wordcount wordwrap xmlattr ",
    kJinjasTests =
        " != < <= == > >= boolean callable defined divisibleby eq equalto escaped even false filter float ge "
        "greaterthan gt in integer iterable le lessthan lower lt mapping ne none number odd sameas sequence string "
        "test true undefined upper ";

bool has_name(std::string_view names, std::string_view name) {
  return names.find(concat(" ", name, " ")) != names.npos;
}

void check_name(const Node& node) {
  const bool filter = node.kind == NodeKind::kFilter;
  if (!filter && node.kind != NodeKind::kTest) return;
  EK_CHECK(has_name(filter ? kJinjasFilters : kJinjasTests, node.text), kData, "line ", node.line, ": Jinja has no ",
           filter ? "filter " : "test ", node.text);
}

/// Selects when Jinja checks a name: when it reads the template, or when it evaluates the name.
enum class When { kRead, kReached };

/// Checks names in a syntax tree. It is not recursive, because a tree may be as deep as its text is long.
class NameChecker {
 public:
  void run(const Syntax& syntax) {
    add_all(syntax.body, When::kRead);
    while (!open_.empty()) {
      const auto [node, when] = open_.back();
      open_.pop_back();
      if (when == When::kRead) check_name(*node);
      add_below(*node, when);
    }
  }

 private:
  void add(const Node* node, When when) {
    if (node) open_.emplace_back(node, when);
  }
  void add_all(const std::vector<const Node*>& nodes, When when) {
    for (const auto* node : nodes) add(node, when);
  }

  void add_below(const Node& node, When when) {
    const bool begins = node.kind == NodeKind::kIf || node.kind == NodeKind::kConditional;
    const auto inside = begins ? When::kReached : when;
    for (size_t i = 0; i < node.children.size(); ++i) add(node.children[i], own_frame(node, i) ? When::kRead : inside);
    for (const auto& [name, argument] : node.named) add(argument, inside);
    add(node.spread, inside);
    add(node.named_spread, inside);
    for (const auto& body : node.bodies) add_all(body, begins ? inside : When::kRead);
  }

  /// Returns true for a loop's `if` and the defaults of a macro, which Jinja compiles as separate frames.
  static bool own_frame(const Node& node, size_t child) {
    return node.kind == NodeKind::kMacro || (node.kind == NodeKind::kFor && (child == 1 || !node.text.empty()));
  }

  std::vector<std::pair<const Node*, When>> open_;
};

}  // namespace

void check_names(const Syntax& syntax) { NameChecker().run(syntax); }

}  // namespace evenkeel::jinja
