/// \file  Defines the syntax tree of a Jinja template. The subset has text, {{ }}, if, for, set (names, namespace
/// attributes, blocks), macro, call, break, continue, raw and transformers' generation, and all operators of Jinja's
/// expressions.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace evenkeel::jinja {

/// Variables that a macro gets without declaring them, if its body uses them.
enum Extra : uint8_t { kCaller = 1, kVarargs = 2, kKwargs = 4 };
/// Returns the Extra of a name, or 0 for any other name.
uint8_t extra_named(std::string_view name);

/// The kinds of nodes. The comments list the members of Node that each kind uses.
enum class NodeKind {
  // statements
  kText,   ///< text
  kPrint,  ///< children[0]
  /// children: conditions; bodies[i]: body of children[i]; an additional last body: else.
  kIf,
  /// names: targets; children[0]: iterable; children[1]: condition of the loop, or null; bodies[0]: body; bodies[1]:
  /// else, optional; text: "recursive" or empty.
  kFor,
  /// names: targets (for a namespace attribute: the attribute, and text is the namespace); children[0]: value.
  kSet,
  kSetBlock,  ///< names[0]: target; bodies[0]: body
  /// text: name; names: parameters; children: defaults, or null; bodies[0]: body.
  kMacro,
  kCallBlock,   ///< children[0]: the call (kCall); children[1]: the caller (kMacro)
  kGeneration,  ///< bodies[0]
  kBreak,
  kContinue,
  // expressions
  kConstant,   ///< constant
  kName,       ///< text
  kList,       ///< children
  kTuple,      ///< children
  kDict,       ///< children: key, value, key, value ...
  kAttribute,  ///< children[0] . text
  kItem,       ///< children[0] [ children[1] ]
  kSlice,      ///< children[0] [ children[1] : children[2] : children[3] ], each of the three may be null
  kCall,       ///< children[0] ( arguments )
  kFilter,     ///< children[0] | text ( arguments )
  kTest,       ///< children[0] is text ( arguments )
  kNot,        ///< children[0]
  kNegative,
  kPositive,
  kAnd,  ///< children[0], children[1]
  kOr,
  kBinary,       ///< text: + - * / // % ** ~
  kCompare,      ///< children[0] names[0] children[1] names[1] children[2] ...
  kConditional,  ///< children[1] if children[0] else children[2] (or null)
};

/// A node of the tree. Children are borrowed from Syntax::nodes.
struct Node {
  NodeKind kind;
  int line = 0;
  std::string text{};
  std::vector<std::string> names{};
  Value constant{};
  std::vector<const Node*> children{};  ///< of calls, filters and tests: the subject, then the positional arguments
  std::vector<std::pair<std::string, const Node*>> named{};  ///< keyword arguments
  const Node *spread = nullptr, *named_spread = nullptr;     ///< of a call: *spread and **named_spread, or null
  std::vector<std::vector<const Node*>> bodies{};
  uint8_t extras = 0;  ///< of a macro: the Extra bits that its body uses
};

/// A parsed template. It owns all nodes, so that deep trees are destroyed without recursion.
struct Syntax {
  std::deque<Node> nodes;
  std::vector<const Node*> body;
  bool marks_generation = false;  ///< true: the template contains {% generation %}
};

}  // namespace evenkeel::jinja
