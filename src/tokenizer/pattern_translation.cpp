#include "tokenizer/pattern_translation.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/unicode/unicode.h"
#include "tokenizer/case_folding.h"
#include "tokenizer/character_classes.h"
#include "tokenizer/pattern_set.h"

namespace evenkeel::tokenizer {
namespace {

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

/// Returns a pattern for a member of `set` in any case. It also matches the sequences of characters to which some
/// members fold.
std::string in_any_case(const CodeSet& set) {
  const auto all = with_all_cases(set);
  auto out = bracket_expression(all);
  const auto sequences = folded_sequences(all);
  if (sequences.empty()) return out;
  for (const auto& sequence : sequences) {
    out += '|';
    for (const auto& one : sequence) out += bracket_expression(one);
  }
  return concat("(?:", out, ")");
}

/// Returns the class of an escape outside brackets, where \w has more members.
CodeSet outside_brackets(const CodeSet& set) {
  const auto word = letter_class('w');
  if (set == word) return word_outside_brackets();
  return set == word.complement() ? word_outside_brackets().complement() : set;
}

/// Returns a pattern for the code points in sequence, in any case, or for a character whose case folding they are.
std::string sequence_in_any_case(std::span<const uint32_t> codes) {
  auto out = concat("(?:", bracket_expression(characters_of(codes)), "|");
  for (const uint32_t code : codes) out += bracket_expression(with_all_cases(CodeSet::of(code, code)));
  return out + ")";
}

struct Options {
  bool ignore_case = false, dot_is_any = false, look_behind = false;
};

/// A group that back references can refer to.
struct Capture {
  std::string name;       ///< empty for unnamed groups
  bool closed = false;    ///< true after its end was read
  bool settled = true;    ///< false: in a repeated group or a look-around, where engines differ in its content
  bool referred = false;  ///< true if a back reference refers to it
};

/// Rewrites one pattern, left to right.
class Translator {
 public:
  /// \param captures  true: groups are written as captures, which only back references need
  /// \param names_only  true: unnamed groups capture nothing, because the pattern has named ones
  Translator(std::string_view pattern, bool captures, bool names_only)
      : in_(pattern), writes_captures_(captures), names_only_(names_only) {}

  std::string run() {
    alternatives();
    if (!in_.done()) in_.refuse("an unmatched )");
    return std::move(out_);
  }
  bool refers_back() const {
    return std::any_of(captures_.begin(), captures_.end(), [](const auto& x) { return x.referred; });
  }
  bool has_names() const {
    return std::any_of(captures_.begin(), captures_.end(), [](const auto& x) { return !x.name.empty(); });
  }

 private:
  struct Repeat {
    std::string text;
    int64_t least, most;  ///< numbers of repetitions; kEndless: unlimited
    bool once() const { return least == 1 && most == 1; }
  };
  static constexpr int64_t kEndless = -1;

  void alternatives() {
    if (++depth_ > kMostNestedGroups) in_.refuse("so deep a nesting");
    for (skip_comments(); !in_.done() && !in_.starts(")"); skip_comments()) {
      if (in_.take("|")) {
        out_ += '|';
        before_.clear();
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

  /// Translates an atom and its quantifiers. A second quantifier repeats the atom with the first one.
  void piece() {
    const size_t begin = out_.size(), first_capture = captures_.size();
    const bool repeatable = atom();
    skip_comments();
    for (bool first = true; const auto repeat = quantifier(); first = false) {
      if (!repeatable) in_.refuse("a quantifier that has nothing to repeat");
      if (!repeat->once()) before_.clear();  // letters are not folded together with repeated ones
      if (repeat->most != 1) unsettle(first_capture);
      if (!first) out_.insert(begin, "(?:").append(")");
      out_ += repeat->text;
      skip_comments();
    }
  }

  /// Marks the groups from `first` on as repeated or in a look-around.
  void unsettle(size_t first, bool repeated = true) {
    for (size_t i = first; i < captures_.size(); ++i) {
      if (captures_[i].referred && repeated) in_.refuse("a back reference in a repeated group");
      captures_[i].settled = false;
    }
  }

  std::optional<Repeat> quantifier() {
    for (const std::string_view sign : {"*", "+", "?"}) {
      if (!in_.take(sign)) continue;
      Repeat repeat{std::string(sign), sign == "+" ? 1 : 0, sign == "?" ? 1 : kEndless};
      if (in_.take("?"))
        repeat.text += '?';
      else if (in_.take("+"))
        repeat.text += '+';
      return repeat;
    }
    return interval();
  }

  /// Removes the digits at the front of `text` and returns their value.
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

  /// Reads {n}, {n,}, {n,m} or {,m}; any other brace is a character. A ? after {n} is a quantifier of its own.
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
    Repeat repeat{concat("{", least.value_or(0), ",", most ? concat(*most) : "", "}"), least.value_or(0),
                  most.value_or(kEndless)};
    if (comma && in_.take("?")) repeat.text += '?';
    return repeat;
  }

  /// Translates an atom. Returns true if a quantifier may follow.
  bool atom() {
    const auto before = std::exchange(before_, in_.starts("(") ? before_ : std::vector<uint32_t>());
    if (in_.take("(")) return group();
    if (in_.take("\\")) return escape(before);
    if (in_.take("[")) return bracketed_set();
    if (in_.take(".")) return write(options_.dot_is_any ? kAnyCharacter : kNoNewline);
    if (in_.take("^")) return write("^", false);
    if (in_.take("$")) return write("$", false);
    if (quantifier()) in_.refuse("a quantifier that has nothing to repeat");
    return literals(before, in_.code_point());
  }

  bool write(std::string_view text, bool repeatable = true) {
    out_ += text;
    return repeatable;
  }

  bool bracketed_set() {
    const auto [members, negated] = read_set(in_);
    if (options_.ignore_case)
      return write(negated ? bracket_expression(with_all_cases(members).complement()) : in_any_case(members));
    return write(bracket_expression(negated ? members.complement() : members));
  }

  /// Returns the quantifier that follows comments, if there is one, without consuming it.
  std::optional<Repeat> next_quantifier() {
    const auto here = in_;
    skip_comments();
    const auto found = quantifier();
    in_ = here;
    return found;
  }

  /// Consumes a literal character, or nothing.
  std::optional<uint32_t> next_literal() {
    const auto here = in_;
    skip_comments();
    const bool meaningful = in_.done() || std::string_view("([.^$|)*+?").find(in_.peek()) != std::string_view::npos;
    if (!meaningful && !in_.starts("\\")) return in_.code_point();
    if (in_.take("\\") && !is_escape_of_more() && !in_.escaped_class()) return in_.escaped_code_point();
    in_ = here;
    return std::nullopt;
  }

  /// Returns true for escapes that are neither classes nor characters.
  bool is_escape_of_more() const {
    return in_.done() || std::string_view("bBAzZRNOk123456789").find(in_.peek()) != std::string_view::npos;
  }

  /// Translates a character and, with option i, the unquantified literals after it.
  bool literals(const std::vector<uint32_t>& before, uint32_t first) {
    std::vector<uint32_t> codes{first};
    const auto repeat = next_quantifier();
    for (bool more = options_.ignore_case && !repeat; more;) {
      const auto here = in_;
      const auto next = next_literal();
      more = next && !next_quantifier();
      if (more) codes.push_back(*next);
      if (!more) in_ = here;
    }
    if (!repeat || repeat->once()) require_no_folding_across(before, codes);
    write_literals(codes);
    before_.assign(codes.end() - static_cast<ptrdiff_t>(std::min<size_t>(codes.size(), 2)), codes.end());
    return true;
  }

  void write_literals(std::span<const uint32_t> codes) {
    while (!codes.empty()) {
      const bool folds = options_.ignore_case && !options_.look_behind;
      const size_t count = folds ? folded_together(codes) : 1;
      if (count > 1)
        out_ += sequence_in_any_case(codes.first(count));
      else
        write_literal(codes[0]);
      codes = codes.subspan(count);
    }
  }

  /// Writes a literal. In a look-behind, a letter matches no folding of several.
  void write_literal(uint32_t code_point) {
    const auto alone = CodeSet::of(code_point, code_point);
    if (!options_.ignore_case) return append_quoted(out_, code_point);
    const auto cases = options_.look_behind ? bracket_expression(with_all_cases(alone)) : in_any_case(alone);
    if (cases != bracket_expression(alone))
      out_ += cases;
    else
      append_quoted(out_, code_point);
  }

  /// Refuses letters that Oniguruma folds together across the bounds of groups, options and {1}.
  void require_no_folding_across(std::vector<uint32_t> before, const std::vector<uint32_t>& codes) const {
    if (!options_.ignore_case || options_.look_behind) return;
    for (before.push_back(codes[0]); before.size() > 1; before.erase(before.begin()))
      if (begin_a_folding(before)) in_.refuse("letters that fold to one, as ss, at the bounds of a group");
  }

  bool group() {
    if (in_.starts("*")) in_.refuse("(*");
    if (!in_.take("?")) return names_only_ ? enclosed("(?:") : captured("");
    for (const std::string_view kind : {"=", "!", "<=", "<!"})
      if (in_.take(kind)) return look_around(kind);
    if (in_.take(":")) return enclosed("(?:");
    if (in_.take(">")) return enclosed("(?>");
    if (in_.starts("<") || in_.starts("'")) return named_group();
    return option_group();
  }

  /// Translates the pattern up to the closing parenthesis, and consumes the parenthesis.
  bool enclosed(std::string_view opening) {
    const auto outer = options_;
    out_ += opening;
    alternatives();
    if (!in_.take(")")) in_.refuse("a group without an end");
    out_ += ')';
    options_ = outer;
    return true;
  }

  bool look_around(std::string_view kind) {
    const auto outer = options_;
    const size_t first_capture = captures_.size();
    options_.look_behind |= kind.starts_with('<');
    enclosed(concat("(?", kind));
    options_ = outer;
    unsettle(first_capture, false);
    return false;
  }

  static auto named(std::string_view name) {
    return [name](const Capture& capture) { return capture.name == name; };
  }

  bool captured(std::string_view name) {
    const auto same = std::find_if(captures_.begin(), captures_.end(), named(name));
    if (!name.empty() && same != captures_.end() && same->referred) in_.refuse("two groups of one name");
    const size_t own = captures_.size();
    captures_.push_back({std::string(name)});
    enclosed(writes_captures_ ? "(" : "(?:");
    captures_[own].closed = true;
    return true;
  }

  bool named_group() {
    const char end = in_.take("<") ? '>' : '\'';
    if (end == '\'') in_.skip(1);
    const auto name = in_.rest().substr(0, in_.rest().find(end));
    if (name.size() == in_.rest().size() || !is_name(name)) in_.refuse("such a name of a group");
    in_.skip(name.size() + 1);
    return captured(name);
  }

  /// Translates \k<name>, \k'name' or \k<1>.
  bool named_reference() {
    const char open = in_.peek(), end = open == '<' ? '>' : '\'';
    if (!in_.take("<") && !in_.take("'")) in_.refuse("\\k");
    const auto name = in_.rest().substr(0, in_.rest().find(end));
    if (name.size() == in_.rest().size()) in_.refuse("such a back reference");
    in_.skip(name.size() + 1);
    if (!is_name(name)) return numbered_reference(name);
    const auto found = std::find_if(captures_.begin(), captures_.end(), named(name));
    if (std::count_if(captures_.begin(), captures_.end(), named(name)) > 1) in_.refuse("two groups of one name");
    return reference(static_cast<size_t>(found - captures_.begin()));
  }

  bool numbered_reference(std::string_view digits) {
    auto rest = digits;
    const auto count = number(rest);
    if (!count || *count == 0 || !rest.empty() || names_only_) in_.refuse(concat("the back reference ", digits));
    return reference(static_cast<size_t>(*count - 1));
  }

  bool reference(size_t index) {
    if (options_.ignore_case) in_.refuse("a back reference under the option i");
    if (options_.look_behind) in_.refuse("a back reference in a look-behind");
    if (index >= captures_.size() || !captures_[index].closed) in_.refuse("a back reference to no earlier group");
    if (!captures_[index].settled) in_.refuse("a back reference to a group that is repeated or in a look-around");
    captures_[index].referred = true;
    return write(concat("\\g{", index + 1, "}"));
  }

  /// Translates (?i: ) and (?m-i: ). The option of (?i) applies up to the end of the enclosing group, including later
  /// alternatives.
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

  bool escape(const std::vector<uint32_t>& before) {
    if (in_.take("b")) return word_boundary(")(?!", ")(?=");
    if (in_.take("B")) return word_boundary(")(?=", ")(?!");
    for (const std::string_view anchor : {"A", "z", "Z"})
      if (in_.take(anchor)) return write(concat("\\", anchor), false);
    if (in_.take("R")) return write(kLineBreak);
    if (in_.take("N")) return write(kNoNewline);
    if (in_.take("O")) return write(kAnyCharacter);
    if (in_.take("k")) return named_reference();
    if (const size_t digits = in_.rest().find_first_not_of("0123456789"); digits > 0 && in_.peek() > '0')
      return numbered_reference(in_.take_bytes(std::min(digits, in_.rest().size())));
    if (const auto set = in_.escaped_class()) return write(bracket_expression(outside_brackets(*set)));
    return literals(before, in_.escaped_code_point());
  }

  /// Writes \b, a word character on exactly one side, or \B, a word character on both sides or on neither.
  bool word_boundary(std::string_view behind_word, std::string_view behind_other) {
    const auto word = bracket_expression(word_outside_brackets());
    return write(concat("(?:(?<=", word, behind_word, word, ")|(?<!", word, behind_other, word, "))"), false);
  }

  PatternCursor in_;
  std::string out_;
  int depth_ = 0;
  /// The last one or two literal characters, also across parentheses; empty after any other construct.
  std::vector<uint32_t> before_;
  std::vector<Capture> captures_;
  bool writes_captures_, names_only_;
  Options options_;
};

}  // namespace

std::string translate_pattern(std::string_view pattern) {
  Translator once(pattern, false, false);
  auto out = once.run();
  return once.refers_back() ? Translator(pattern, true, once.has_names()).run() : out;
}

std::string quoted_pattern(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto code = unicode::decode(text.data() + at);
    append_quoted(out, code.value);
    at += code.length;
  }
  return out;
}

}  // namespace evenkeel::tokenizer
