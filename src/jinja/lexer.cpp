#include "jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/plain/error.h"
#include "base/unicode/unicode.h"
#include "jinja/text_functions.h"

namespace evenkeel::jinja {
namespace {

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Converts all newlines to \n and removes one at the end.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!pair) out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (!rest_.empty()) text_and_tag();
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(kData, "line ", line_, ": ", parts...);
  }

  void add(TokenType type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }

  std::string_view take(size_t count) {
    const auto taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    line_ += static_cast<int>(std::count(taken.begin(), taken.end(), '\n'));
    return taken;
  }
  bool skip(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    take(word.size());
    return true;
  }
  void skip_space() { take(leading_space(rest_)); }

  static size_t tag_in(std::string_view text) {
    for (size_t at = 0; (at = text.find('{', at)) != text.npos; ++at)
      if (at + 1 < text.size() && std::string_view("{%#").find(text[at + 1]) != std::string_view::npos) return at;
    return text.size();
  }

  /// Adds the text before a tag, without the white space that the tag's sign or lstrip_blocks removes.
  /// \param at  end of the text in rest_
  void add_text(size_t at, char kind, char sign) {
    const auto text = take(at);
    size_t end = text.size();
    if (sign == '-') {
      end = trailing_space_begin(text);
    } else if (sign != '+' && kind != '{') {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 == 0
      if ((line > 0 || line_starting_) && leading_space(text.substr(line)) == text.size() - line) end = line;
    }
    if (end > 0) add(TokenType::kText, std::string(text.substr(0, end)));
    line_starting_ = false;
  }

  static char sign_of(std::string_view tag) {
    const char sign = tag.size() > 2 ? tag[2] : ' ';
    return sign == '-' || sign == '+' ? sign : ' ';
  }

  void text_and_tag() {
    const size_t at = tag_in(rest_);
    if (at == rest_.size()) {
      if (at > 0) add(TokenType::kText, std::string(take(at)));
      return;
    }
    const auto tag = rest_.substr(at);
    const char kind = tag[1], sign = sign_of(tag);
    add_text(at, kind, sign);
    take(sign == ' ' ? 2 : 3);
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    add(kind == '%' ? TokenType::kBlockBegin : TokenType::kPrintBegin, "");
    code(kind == '%');
  }

  /// Skips white space after a tag: all of it after -%}, one newline after %}.
  void after_end(char sign, bool trims_newline) {
    const auto before = rest_;
    if (sign == '-')
      skip_space();
    else if (sign != '+' && trims_newline)
      skip("\n");
    const auto taken = before.substr(0, before.size() - rest_.size());
    line_starting_ = taken.ends_with('\n');
  }

  void comment() {
    const size_t end = rest_.find("#}");
    if (end == rest_.npos) refuse("a comment does not end");
    const char sign = end > 0 ? rest_[end - 1] : ' ';
    take(end + 2);
    after_end(sign, true);
  }

  /// Adds the content of {% raw %} ... {% endraw %} as text.
  bool raw() {
    const auto before = rest_;
    const int line = line_;
    skip_space();
    const bool word = skip("raw");
    skip_space();
    if (const bool strips = word && skip("-%}"); strips || (word && skip("%}"))) {
      if (strips) skip_space();
      raw_text();
      return true;
    }
    rest_ = before;
    line_ = line;
    return false;
  }

  void raw_text() {
    for (size_t at = 0; (at = rest_.find("{%", at)) != rest_.npos; at += 2) {
      const auto tag = rest_.substr(at);
      auto inside = tag.substr(sign_of(tag) == ' ' ? 2 : 3);
      inside.remove_prefix(leading_space(inside));
      if (!inside.starts_with("endraw")) continue;
      inside.remove_prefix(6);
      inside.remove_prefix(leading_space(inside));
      const char sign = inside.starts_with("-%}") ? '-' : inside.starts_with("+%}") ? '+' : ' ';
      if (sign == ' ' && !inside.starts_with("%}")) continue;
      const size_t length = tag.size() - inside.size() + (sign == ' ' ? 2 : 3);
      add_text(at, '%', sign_of(tag));
      take(length);
      return after_end(sign, true);
    }
    refuse("{% raw %} does not end");
  }

  bool ends(bool block) {
    const std::string_view end = block ? "%}" : "}}";
    const char sign = rest_.front();
    const bool signed_end = (sign == '-' || (sign == '+' && block)) && rest_.substr(1).starts_with(end);
    if (!signed_end && !rest_.starts_with(end)) return false;
    add(block ? TokenType::kBlockEnd : TokenType::kPrintEnd, "");
    take(signed_end ? 3 : 2);
    after_end(signed_end ? sign : ' ', block);
    return true;
  }

  void code(bool block) {
    std::string open;  // brackets that are not closed yet
    while (true) {
      skip_space();
      if (rest_.empty()) refuse("a tag does not end");
      if (open.empty() && ends(block)) return;
      if (is_name_start(rest_.front()))
        name();
      else if (is_digit(rest_.front()))
        number();
      else if (rest_.front() == '"' || rest_.front() == '\'')
        string();
      else
        punctuation(open);
    }
  }

  void name() {
    const auto end = std::find_if(rest_.begin(), rest_.end(), [](char c) { return !is_name_start(c) && !is_digit(c); });
    add(TokenType::kName, std::string(take(static_cast<size_t>(end - rest_.begin()))));
  }

  size_t digits_from(size_t at) const {
    while (at < rest_.size() &&
           (is_digit(rest_[at]) || (rest_[at] == '_' && at + 1 < rest_.size() && is_digit(rest_[at + 1]))))
      ++at;
    return at;
  }

  void number() {
    const bool after_dot =
        !tokens_.empty() && tokens_.back().type == TokenType::kOperator && tokens_.back().text == ".";
    const auto digit_at = [&](size_t at) { return at < rest_.size() && is_digit(rest_[at]); };
    size_t end = digits_from(0);
    const size_t whole = end;
    if (!after_dot && end < rest_.size() && rest_[end] == '.' && digit_at(end + 1)) end = digits_from(end + 1);
    if (!after_dot && end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
      const bool sign = end + 1 < rest_.size() && (rest_[end + 1] == '-' || rest_[end + 1] == '+');
      if (digit_at(end + (sign ? 2 : 1))) end = digits_from(end + (sign ? 2 : 1));
    }
    if (end < rest_.size() && is_name_start(rest_[end]))
      refuse("a number that goes on with letters is not part of the subset");
    std::string digits(take(end));
    std::erase(digits, '_');
    add(end > whole ? TokenType::kFloat : TokenType::kInteger, std::move(digits));
  }

  uint32_t hex(std::string_view& body, size_t digits) const {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = i < body.size() ? body[i] : ' ';
      const auto digit =
          std::string_view("0123456789abcdef").find(static_cast<char>(c >= 'A' && c <= 'F' ? c + 32 : c));
      if (digit == std::string_view::npos) refuse("\\x, \\u and \\U need 2, 4 and 8 hexadecimal digits");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    body.remove_prefix(digits);
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) refuse("an escape names no character");
    return value;
  }

  /// Translates an escape sequence of a string, as in Python.
  void escape(std::string_view& body, std::string& out) const {
    constexpr std::string_view kLetters = "ntrbfav\\'\"", kMeanings = "\n\t\r\b\f\a\v\\'\"";
    const char c = body.front();
    body.remove_prefix(1);
    if (const auto at = kLetters.find(c); at != kLetters.npos)
      out += kMeanings[at];
    else if (c == 'x' || c == 'u' || c == 'U')
      unicode::append(out, hex(body, c == 'x' ? 2 : c == 'u' ? 4 : 8));
    else if (is_digit(c) || c == 'N' || static_cast<unsigned char>(c) >= 0x80)
      refuse("the escape \\", c, " is not part of the subset");
    else if (c != '\n')
      out += {'\\', c};
  }

  void string() {
    const char quote = rest_.front();
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) refuse("a string does not end");
    auto body = rest_.substr(1, end - 1);
    std::string value;
    while (!body.empty()) {
      const char c = body.front();
      body.remove_prefix(1);
      c == '\\' ? escape(body, value) : value.push_back(c);
    }
    add(TokenType::kString, std::move(value));
    take(end + 1);
  }

  void punctuation(std::string& open) {
    constexpr std::array<std::string_view, 25> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                             "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                             ">",  "<",  "=",  ".",  ":",  "|",  ","};
    const auto found =
        std::find_if(kOperators.begin(), kOperators.end(), [&](auto word) { return rest_.starts_with(word); });
    if (found == kOperators.end())
      refuse("the character '", rest_.substr(0, unicode::decode(rest_.data()).length), "' is not expected");
    const char c = found->front();
    if (found->size() == 1 && std::string_view("([{").find(c) != std::string_view::npos) open += c;
    if (found->size() == 1 && std::string_view(")]}").find(c) != std::string_view::npos) close(open, c);
    add(TokenType::kOperator, std::string(take(found->size())));
  }

  void close(std::string& open, char c) const {
    const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (open.empty() || open.back() != wanted) refuse("'", c, "' closes nothing");
    open.pop_back();
  }

  std::string source_;
  std::string_view rest_;
  std::vector<Token> tokens_;
  int line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace evenkeel::jinja
