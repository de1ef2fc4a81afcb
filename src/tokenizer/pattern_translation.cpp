#include "tokenizer/pattern_translation.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/unicode/unicode.h"
#include "tokenizer/case_folding.h"
#include "tokenizer/character_classes.h"
#include "tokenizer/pattern_set.h"

namespace evenkeel {
namespace {

using unicode::bracket_expression;
using unicode::CodeSet;

constexpr int kMostNestedGroups = 200;     // PCRE2 allows 250
constexpr size_t kMostOutput = 512 << 10;  // bytes
constexpr std::string_view kAnyCharacter = "(?s:.)", kNoNewline = "[^\\n]";
constexpr std::string_view kLineBreak = "(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])";

void append_quoted(std::string& out, uint32_t code_point) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (code_point >= 0x80 || std::isalnum(static_cast<int>(code_point)) != 0) return unicode::append(out, code_point);
  out.append("\\x").append(1, kDigits[code_point >> 4]).append(1, kDigits[code_point & 15]);
}

bool is_name(std::string_view name) {
  const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
         std::all_of(name.begin(), name.end(), fits);
}

/// Any of the set in any case, as the several characters that some fold to as well.
std::string in_any_case(const CodeSet& set) {
  const auto all = unicode::with_all_cases(set);
  auto out = bracket_expression(all);
  const auto sequences = unicode::folded_sequences(all);
  if (sequences.empty()) return out;
  for (const auto& sequence : sequences) {
    out += '|';
    for (const auto& one : sequence) out += bracket_expression(one);
  }
  return concat("(?:", out, ")");
}

/// What the class of an escape is outside brackets. Words have more members there.
CodeSet outside_brackets(const CodeSet& set) {
  const auto word = unicode::letter_class('w');
  if (set == word) return unicode::word_outside_brackets();
  return set == word.complement() ? unicode::word_outside_brackets().complement() : set;
}

struct Options {
  bool ignore_case = false, dot_is_any = false;
};

/// Rewrites one pattern, left to right.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    alternatives();
    if (!in_.done()) in_.refuse("an unmatched )");
    return std::move(out_);
  }

 private:
  struct Repeat {
    std::string text;
    int64_t most;  ///< times; kEndless: any number
  };
  static constexpr int64_t kEndless = -1;

  void alternatives() {
    if (++depth_ > kMostNestedGroups) in_.refuse("so deep a nesting");
    for (skip_comments(); !in_.done() && !in_.starts(")"); skip_comments()) {
      if (in_.take("|")) {
        out_ += '|';
        before_ = 0;
      } else {
        piece();
      }
      if (out_.size() > kMostOutput) in_.refuse("so long a pattern");
    }
    --depth_;
  }

  void skip_comments() {
    while (in_.take("(?#")) {
      const size_t close = in_.rest().find(')');
      if (close == std::string_view::npos) in_.refuse("a comment without an end");
      if (in_.rest().substr(0, close).find('\\') != std::string_view::npos) in_.refuse("an escape in a comment");
      in_.skip(close + 1);
    }
  }

  /// An atom and its quantifiers. A quantifier behind another repeats what that one made.
  void piece() {
    const size_t begin = out_.size();
    const bool repeatable = atom();
    skip_comments();
    for (bool first = true; const auto repeat = quantifier(); first = false) {
      if (!repeatable) in_.refuse("a quantifier that has nothing to repeat");
      if (options_.ignore_case && repeat->most != 1 && unicode::fold_together(before_, before_))
        in_.refuse("a repeated s or f under the option i");
      if (!first) out_.insert(begin, "(?:").append(")");
      out_ += repeat->text;
      skip_comments();
    }
  }

  std::optional<Repeat> quantifier() {
    for (const std::string_view sign : {"*", "+", "?"}) {
      if (!in_.take(sign)) continue;
      Repeat repeat{std::string(sign), sign == "?" ? 1 : kEndless};
      if (in_.take("?"))
        repeat.text += '?';
      else if (in_.take("+"))
        repeat.text += '+';
      return repeat;
    }
    return interval();
  }

  /// Digits at the front of `text`, which are taken off.
  std::optional<int64_t> number(std::string_view& text) const {
    constexpr size_t kMostDigits = 5;
    int64_t value = 0;
    const auto* end = std::from_chars(text.data(), text.data() + text.size(), value).ptr;
    const auto length = static_cast<size_t>(end - text.data());
    if (length == 0 || text[0] == '-') return std::nullopt;
    if (length > kMostDigits) in_.refuse("so large a count");
    text.remove_prefix(length);
    return value;
  }

  /// {n}, {n,}, {n,m} and {,m}; any other brace is a character. A ? behind {n} is a quantifier of its own.
  std::optional<Repeat> interval() {
    auto rest = in_.rest();
    if (!rest.starts_with("{")) return std::nullopt;
    rest.remove_prefix(1);
    const auto least = number(rest);
    const bool comma = rest.starts_with(",");
    if (comma) rest.remove_prefix(1);
    const auto most = comma ? number(rest) : least;
    if (!rest.starts_with("}") || (!least && !most)) return std::nullopt;
    in_.skip(in_.rest().size() - rest.size() + 1);
    if (least && most && *most < *least) in_.refuse("{n,m} with an n above m");
    Repeat repeat{concat("{", least.value_or(0), ",", most ? concat(*most) : "", "}"), most.value_or(kEndless)};
    if (comma && in_.take("?")) repeat.text += '?';
    return repeat;
  }

  /// \returns whether a quantifier may follow
  bool atom() {
    const uint32_t before = std::exchange(before_, in_.starts("(") ? before_ : 0);
    if (in_.take("(")) return group();
    if (in_.take("\\")) return escape(before);
    if (in_.take("[")) return bracketed_set();
    if (in_.take(".")) return write(options_.dot_is_any ? kAnyCharacter : kNoNewline);
    if (in_.take("^")) return write("^", false);
    if (in_.take("$")) return write("$", false);
    if (quantifier()) in_.refuse("a quantifier that has nothing to repeat");
    return literal(before, in_.code_point());
  }

  bool write(std::string_view text, bool repeatable = true) {
    out_ += text;
    return repeatable;
  }

  bool bracketed_set() {
    const auto [members, negated] = read_set(in_);
    if (options_.ignore_case)
      return write(negated ? bracket_expression(unicode::with_all_cases(members).complement()) : in_any_case(members));
    return write(bracket_expression(negated ? members.complement() : members));
  }

  bool literal(uint32_t before, uint32_t code_point) {
    const auto alone = CodeSet::of(code_point, code_point);
    if (options_.ignore_case && before != 0 && unicode::fold_together(before, code_point))
      in_.refuse("letters that fold to one, as ss, under the option i");
    const auto cases = options_.ignore_case ? in_any_case(alone) : std::string();
    if (options_.ignore_case && cases != bracket_expression(alone))
      out_ += cases;
    else
      append_quoted(out_, code_point);
    before_ = code_point;
    return true;
  }

  bool group() {
    if (in_.starts("*")) in_.refuse("(*");
    if (!in_.take("?")) return enclosed("(?:");
    for (const std::string_view kind : {"=", "!", "<=", "<!"})
      if (in_.take(kind)) return enclosed(concat("(?", kind)) && false;
    if (in_.take(":")) return enclosed("(?:");
    if (in_.take(">")) return enclosed("(?>");
    if (in_.starts("<") || in_.starts("'")) return named_group();
    return option_group();
  }

  /// What stands up to the next ), which is taken.
  bool enclosed(std::string_view opening) {
    const auto outer = options_;
    out_ += opening;
    alternatives();
    if (!in_.take(")")) in_.refuse("a group without an end");
    out_ += ')';
    options_ = outer;
    return true;
  }

  /// Without back references a name has no effect.
  bool named_group() {
    const char end = in_.take("<") ? '>' : '\'';
    if (end == '\'') in_.skip(1);
    const size_t close = in_.rest().find(end);
    if (close == std::string_view::npos || !is_name(in_.rest().substr(0, close))) in_.refuse("such a name of a group");
    in_.skip(close + 1);
    return enclosed("(?:");
  }

  /// (?i: ) and (?m-i: ); (?i) holds to the end of the group around it, further alternatives included.
  bool option_group() {
    const auto outer = options_;
    for (bool on = true; !in_.starts(")") && !in_.starts(":");) {
      if (on && in_.take("-"))
        on = false;
      else if (in_.take("i"))
        options_.ignore_case = on;
      else if (in_.take("m"))
        options_.dot_is_any = on;
      else
        in_.refuse(concat("(?", in_.rest().substr(0, 1)));
    }
    const auto inner = options_;
    options_ = outer;
    return in_.take(":") ? with_options(inner) : isolated(inner);
  }

  bool with_options(Options inner) {
    const auto outer = std::exchange(options_, inner);
    enclosed("(?:");
    options_ = outer;
    return true;
  }

  bool isolated(Options inner) {
    in_.skip(1);
    const auto outer = std::exchange(options_, inner);
    out_ += "(?:";
    alternatives();
    out_ += ')';
    options_ = outer;
    return false;
  }

  bool escape(uint32_t before) {
    if (in_.take("b")) return word_boundary(")(?!", ")(?=");
    if (in_.take("B")) return word_boundary(")(?=", ")(?!");
    for (const std::string_view anchor : {"A", "z", "Z"})
      if (in_.take(anchor)) return write(concat("\\", anchor), false);
    if (in_.take("R")) return write(kLineBreak);
    if (in_.take("N")) return write(kNoNewline);
    if (in_.take("O")) return write(kAnyCharacter);
    if (const auto set = in_.escaped_class()) return write(bracket_expression(outside_brackets(*set)));
    return literal(before, in_.escaped_code_point());
  }

  /// A word character on one side alone; \B: on both sides or neither.
  bool word_boundary(std::string_view behind_word, std::string_view behind_other) {
    const auto word = bracket_expression(unicode::word_outside_brackets());
    return write(concat("(?:(?<=", word, behind_word, word, ")|(?<!", word, behind_other, word, "))"), false);
  }

  PatternCursor in_;
  std::string out_;
  int depth_ = 0;
  uint32_t before_ = 0;  ///< the character before this place, across the ends of groups; 0: something else
  Options options_;
};

}  // namespace

std::string translate_pattern(std::string_view pattern) { return Translator(pattern).run(); }

std::string quoted_pattern(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto code = unicode::decode(text.data() + at);
    append_quoted(out, code.value);
    at += code.length;
  }
  return out;
}

}  // namespace evenkeel
