/// \file  What a Jinja template says, as a tree. The subset: text, {{ }}, if, for, set (of names, of namespaces, of
/// blocks), macro, call, break, continue, raw, and transformers' generation; expressions with all of Jinja's operators.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace evenkeel::jinja {

/// What a macro is given without a parameter, where its body names it.
enum Extra : uint8_t { kCaller = 1, kVarargs = 2, kKwargs = 4 };
/// 0 for any other name.
uint8_t extra_named(std::string_view name);

enum class NodeKind {
  // statements
  kText,        ///< text
  kPrint,       ///< children[0]
  kIf,          ///< children: conditions, bodies[i] of each; one body more: else
  kFor,         ///< names: targets; children[0] over what, children[1] only if (or null); bodies: each, else;
                ///< text: recursive, or empty
  kSet,         ///< names: targets (of a namespace: text is its name); children[0]
  kSetBlock,    ///< names[0], bodies[0]
  kMacro,       ///< text: its name; names: parameters; children: their defaults (or null); bodies[0]
  kCallBlock,   ///< children[0]: a kCall; children[1]: its caller, a kMacro
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

struct Node {
  NodeKind kind;
  int line = 0;
  std::string text{};
  std::vector<std::string> names{};
  Value constant{};
  std::vector<const Node*> children{};  ///< of calls, filters and tests: the subject, then arguments by place
  std::vector<std::pair<std::string, const Node*>> named{};  ///< arguments by name
  std::vector<std::vector<const Node*>> bodies{};
  uint8_t extras = 0;  ///< of a macro: which of Extra its body names
};

/// Nodes live here: a tree of any shape is given back without recursion.
struct Syntax {
  std::deque<Node> nodes;
  std::vector<const Node*> body;
  bool marks_generation = false;  ///< a {% generation %} stands somewhere
};

}  // namespace evenkeel::jinja
