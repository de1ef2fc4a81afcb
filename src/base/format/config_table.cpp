#include "base/format/config_table.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/plain/files.h"
#include "base/plain/text.h"

namespace evenkeel::config {

struct Table::Document {
  std::string origin;
  toml::table root;
};

namespace {

constexpr size_t kShownKey = 120;  // bytes of an unknown key in a message

const toml::table* as_table(const void* node) { return static_cast<const toml::table*>(node); }

const toml::node* find(const void* node, std::string_view key) {
  return node == nullptr ? nullptr : as_table(node)->get(key);
}

bool is_bare_key(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(),
                                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Returns a value as text for messages: `"abc"`, `[1, 2]`. Long values are shortened.
std::string text_of(const toml::node& node) {
  std::ostringstream out;
  node.visit([&out](const auto& value) {
    if constexpr (toml::is_string<decltype(value)>)
      out << quote(*value);
    else if constexpr (toml::is_table<decltype(value)>)
      out << "a table";
    else
      out << value;
  });
  std::string text = out.str();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return shown(text);
}

std::string location(const toml::node& node, const std::string& origin) {
  const auto line = node.source().begin.line;
  return line == 0 ? std::string(" (from --set)") : concat(" (", origin, ", line ", line, ")");
}

template <typename T>
constexpr std::string_view kExpected = "";
template <>
constexpr std::string_view kExpected<int64_t> = "a whole number";
template <>
constexpr std::string_view kExpected<double> = "a number";
template <>
constexpr std::string_view kExpected<bool> = "true or false";
template <>
constexpr std::string_view kExpected<std::string> = "a string";

/// Returns the value if the node has exactly this type. Integers are also accepted as floating-point numbers.
template <typename T>
std::optional<T> exact(const toml::node& node) {
  if constexpr (std::is_same_v<T, double>)
    if (const auto* whole = node.as_integer()) return static_cast<double>(whole->get());
  if (const auto* value = node.as<T>()) return value->get();
  return std::nullopt;
}

/// TOML allows nan and inf. No setting does.
bool is_finite(double value) { return std::isfinite(value); }
template <typename T>
bool is_finite(const T&) {
  return true;
}

template <typename T>
std::optional<T> scalar_at(const void* table, std::string_view key, const std::string& name,
                           const std::string& origin) {
  const auto* node = find(table, key);
  if (node == nullptr) return std::nullopt;
  auto value = exact<T>(*node);
  EK_CHECK(value, kConfig, name, " is ", text_of(*node), ", expected ", kExpected<T>, location(*node, origin));
  EK_CHECK(is_finite(*value), kConfig, name, " is ", text_of(*node), ", expected a finite number",
           location(*node, origin));
  return value;
}

template <typename T>
std::optional<std::vector<T>> list_at(const void* table, std::string_view key, const std::string& name,
                                      const std::string& origin) {
  const auto* node = find(table, key);
  if (node == nullptr) return std::nullopt;
  const auto* list = node->as_array();
  if constexpr (std::is_same_v<T, std::string>)
    if (const auto one = exact<T>(*node)) return std::vector{*one};
  EK_CHECK(list, kConfig, name, " is ", text_of(*node), ", expected a list, each entry ", kExpected<T>,
           location(*node, origin));
  std::vector<T> values;
  for (const auto& item : *list) {
    auto value = exact<T>(item);
    EK_CHECK(value, kConfig, name, " holds ", text_of(item), ", expected entries that are ", kExpected<T>,
             location(item, origin));
    EK_CHECK(is_finite(*value), kConfig, name, " holds ", text_of(item), ", expected finite numbers",
             location(item, origin));
    values.push_back(std::move(*value));
  }
  return values;
}

/// Limits the recursion of the parser and of the tables that it builds: parts of a dotted key and nested brackets. It
/// skips strings and comments as TOML defines them.
class Bounds {
 public:
  static constexpr size_t kMaxBytes = size_t{16} << 20;

  Bounds(std::string_view text, std::string_view origin) : text_(text), origin_(origin) {}

  void check() {
    require(text_.size() <= kMaxBytes, text_.size(), " bytes", kMaxBytes);
    while (at_ < text_.size()) step(text_[at_]);
  }

 private:
  static constexpr size_t kMaxParts = 32, kMaxDepth = 32;

  void require(bool good, size_t number, std::string_view what, size_t most) const {
    EK_CHECK(good, kConfig, origin_, ": line ", line_, ": ", number, what, ", allowed: up to ", most);
  }

  void step(char c) {
    if (c == '"' || c == '\'') return skip_string(c);
    if (c == '#') return skip_comment();
    if (c == '\n') ++line_;
    depth_ += c == '[' || c == '{' ? 1 : 0;
    require(depth_ <= kMaxDepth, depth_, " brackets within each other", kMaxDepth);
    if (c == ']' || c == '}') depth_ -= depth_ > 0 ? 1 : 0;
    if (c == '.')
      ++parts_;
    else if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos)
      parts_ = 1;
    require(parts_ <= kMaxParts, parts_, " parts of one key", kMaxParts);
    ++at_;
  }

  /// Advances to the quote that ends a string: three quotes if three began it. A single-line string also ends with its
  /// line.
  void skip_string(char quote) {
    const std::string three(3, quote);
    const bool long_one = text_.substr(at_, 3) == three;
    at_ += long_one ? 3 : 1;
    while (at_ < text_.size() && (long_one ? text_.substr(at_, 3) != three : text_[at_] != quote)) {
      if (text_[at_] == '\n' && !long_one) return;
      if (text_[at_] == '\n') ++line_;
      at_ += quote == '"' && text_[at_] == '\\' ? 2 : 1;
    }
    at_ += long_one ? 3 : 1;
  }

  void skip_comment() { at_ = std::min(text_.find('\n', at_), text_.size()); }

  std::string_view text_;
  std::string origin_;
  size_t at_ = 0, line_ = 1, depth_ = 0, parts_ = 1;
};

toml::table parsed(std::string_view text, std::string_view origin) {
  Bounds(text, origin).check();
  try {
    return toml::parse(text, origin);
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    fail(kConfig, origin, ": line ", at.line, ", column ", at.column, ": ", error.description());
  }
}

/// Returns whether a value after --set needs no quotes.
bool is_bare_word(std::string_view text) {
  constexpr std::string_view kWord = "_-./:+@~%";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80 || kWord.find(static_cast<char>(c)) != kWord.npos;
  });
}

/// Parses "[piqa, boolq]" as a list of strings. Returns nothing if the text is not a list of bare words.
std::optional<toml::array> bare_words(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  toml::array words;
  for (std::string_view rest = text.substr(1, text.size() - 2); !rest.empty();) {
    const auto comma = rest.find(',');
    const auto word = trimmed(rest.substr(0, comma));
    if (!is_bare_word(word)) return std::nullopt;
    words.push_back(std::string(word));
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  return words;
}

/// Parses the value of `--set a.b=value`. Returns a table that contains it under the key "value".
toml::table parsed_value(std::string_view text, std::string_view assignment) {
  Bounds(text, concat("--set ", shown(assignment))).check();
  try {
    auto table = toml::parse(concat("value = ", text));
    if (table.size() == 1) return table;
  } catch (const toml::parse_error&) {
    if (is_bare_word(text)) return toml::table{{"value", std::string(text)}};
    if (const auto words = bare_words(text)) return toml::table{{"value", *words}};
  }
  fail(kConfig, "--set ", shown(assignment), ": the value is neither TOML nor a bare word; strings may need quotes");
}

/// Copies the node, because a copy has no line number. The line number would refer to the text after --set.
void assign_copy(toml::table& table, const std::string& key, const toml::node& value) {
  value.visit([&](const auto& node) { table.insert_or_assign(key, node); });
}

bool is_scalar(const toml::node& node) { return !node.is_table() && !node.is_array(); }

/// Puts a value under `key`. A table is merged into a table that is there, at every depth. Otherwise the value replaces
/// what is there; a table and a scalar do not replace each other.
/// \param name  the full key, for messages
void merge(toml::table& table, const std::string& key, const toml::node& value, const std::string& name,
           std::string_view assignment) {
  auto* known = table.get(key);
  if (known == nullptr) return assign_copy(table, key, value);
  const bool is_mixed = (known->is_table() && is_scalar(value)) || (is_scalar(*known) && value.is_table());
  const bool is_name = value.is_string() && known->is_table() && known->as_table()->contains("name");
  EK_CHECK(!is_mixed, kConfig, "--set ", shown(assignment), ": ", name, " is ", text_of(*known), ", not ",
           text_of(value), is_name ? concat("; its name is ", name, ".name") : "");
  if (!known->is_table() || !value.is_table()) return assign_copy(table, key, value);
  for (const auto& [inner, node] : *value.as_table())
    merge(*known->as_table(), std::string(inner.str()), node, concat(name, '.', inner.str()), assignment);
}

}  // namespace

Table Table::load(const std::filesystem::path& file) {
  return parse(read_file(file, Bounds::kMaxBytes), file.string());
}

Table Table::parse(std::string_view text, std::string_view origin) {
  Table table;
  table.document_ = std::make_shared<Document>(Document{std::string(origin), parsed(text, origin)});
  table.node_ = &table.document_->root;
  return table;
}

void Table::set(std::string_view assignment) {
  const auto equals = assignment.find('=');
  EK_CHECK(equals != std::string_view::npos, kConfig, "--set ", shown(assignment), ": expected a.b=value");
  EK_CHECK(node_ != nullptr, kInternal, "config: set on a table that is not there");
  auto* table = const_cast<toml::table*>(as_table(node_));
  std::string_view keys = trimmed(assignment.substr(0, equals));
  const std::string name(keys);
  Bounds(keys, concat("--set ", shown(assignment))).check();
  while (true) {
    const auto dot = keys.find('.');
    const std::string key(trimmed(keys.substr(0, dot)));
    EK_CHECK(is_bare_key(key), kConfig, "--set ", shown(assignment), ": \"", key, "\" is not a key");
    if (dot == std::string_view::npos) {
      const auto value = parsed_value(trimmed(assignment.substr(equals + 1)), assignment);
      return merge(*table, key, *value.get("value"), name, assignment);
    }
    auto* next = table->get(key);
    if (next == nullptr) next = &table->insert(key, toml::table{}).first->second;
    EK_CHECK(next->is_table(), kConfig, "--set ", shown(assignment), ": ", key, " is ", text_of(*next),
             ", not a table");
    table = next->as_table();
    keys.remove_prefix(dot + 1);
  }
}

std::string Table::text() const {
  std::ostringstream out;
  if (node_ != nullptr) out << *as_table(node_) << '\n';
  return out.str();
}

std::vector<std::string> Table::keys() const {
  std::vector<std::string> result;
  if (node_ == nullptr) return result;
  for (const auto& [key, value] : *as_table(node_)) result.emplace_back(key.str());
  return result;
}

bool Table::contains(std::string_view key) const { return find(node_, key) != nullptr; }

bool Table::contains_path(std::string_view path) const {
  const auto dot = path.find('.');
  const auto* node = find(node_, path.substr(0, dot));
  if (node == nullptr || dot == path.npos) return node != nullptr;
  return node->is_table() && table(path.substr(0, dot)).contains_path(path.substr(dot + 1));
}

bool Table::holds_table(std::string_view key) const {
  const auto* node = find(node_, key);
  return node != nullptr && node->is_table();
}

Table Table::table(std::string_view key, std::string_view expected) const {
  return child(find(node_, key), full_key(key), expected);
}

std::vector<Table> Table::tables(std::string_view key) const {
  std::vector<Table> all;
  const auto* node = find(node_, key);
  if (node == nullptr) return all;
  EK_CHECK(node->is_array(), kConfig, full_key(key), " is ", text_of(*node), ", expected a list of tables",
           location(*node, origin()));
  for (const auto& item : *node->as_array())
    all.push_back(child(&item, concat(full_key(key), "[", all.size(), "]"), "a table"));
  return all;
}

bool Table::holds_list(std::string_view key) const {
  const auto* node = find(node_, key);
  return node != nullptr && node->is_array();
}

/// \param any  a toml::node of this document, or null
Table Table::child(const void* any, std::string path, std::string_view expected) const {
  Table child;
  child.document_ = document_;
  child.path_ = std::move(path);
  const auto* node = static_cast<const toml::node*>(any);
  if (node == nullptr) return child;
  EK_CHECK(node->is_table(), kConfig, child.path_, " is ", text_of(*node), ", expected ", expected,
           location(*node, origin()));
  child.node_ = node->as_table();
  return child;
}

std::optional<int64_t> Table::integer(std::string_view key) const {
  return scalar_at<int64_t>(node_, key, full_key(key), origin());
}
std::optional<double> Table::number(std::string_view key) const {
  return scalar_at<double>(node_, key, full_key(key), origin());
}
std::optional<bool> Table::boolean(std::string_view key) const {
  return scalar_at<bool>(node_, key, full_key(key), origin());
}
std::optional<std::string> Table::string(std::string_view key) const {
  return scalar_at<std::string>(node_, key, full_key(key), origin());
}
std::optional<std::vector<int64_t>> Table::integers(std::string_view key) const {
  return list_at<int64_t>(node_, key, full_key(key), origin());
}
std::optional<std::vector<double>> Table::numbers(std::string_view key) const {
  return list_at<double>(node_, key, full_key(key), origin());
}
std::optional<std::vector<std::string>> Table::strings(std::string_view key) const {
  return list_at<std::string>(node_, key, full_key(key), origin());
}
std::optional<Names> Table::names(std::string_view key) const {
  const auto* node = find(node_, key);
  if (node == nullptr) return std::nullopt;
  if (const auto* one = node->as_string()) return Names(one->get());
  EK_CHECK(node->is_array(), kConfig, full_key(key), " is ", text_of(*node), ", expected a string or a list of strings",
           location(*node, origin()));
  const auto several = *strings(key);
  EK_CHECK(!several.empty(), kConfig, full_key(key), " is empty, expected one name or more", location(*node, origin()));
  Names names;
  names.assign(several.begin(), several.end());
  return names;
}

std::string Table::full_key(std::string_view key) const {
  return path_.empty() ? std::string(key) : concat(path_, ".", key);
}

std::string Table::origin() const { return document_ ? document_->origin : std::string(); }

std::string Table::place_of(std::string_view key) const {
  const auto* node = find(node_, key);
  if (node != nullptr) return location(*node, origin());
  return document_ ? concat(" (", origin(), ")") : std::string();
}

void Reader::finish() const {
  for (const auto& key : table_.keys())
    EK_CHECK(known_.contains(key), kConfig, shown(table_.full_key(key), kShownKey), " is not a known key",
             table_.place_of(key), "; known: ", join(known_));
}

void Writer::scalar(std::string_view key, const Names& value, std::string_view help) {
  const std::vector<std::string>& several = value;
  several.size() == 1 ? scalar(key, several.front(), help) : scalar(key, several, help);
}

std::string Writer::text(bool comments) const {
  std::ostringstream out;
  if (!path_.empty() && (!lines_.empty() || children_.empty()))
    out << (entry_ ? "[[" : "[") << path_ << (entry_ ? "]]\n" : "]\n");
  for (const auto& line : lines_) {
    out << (is_bare_key(line.key) ? line.key : quote(line.key)) << " = " << line.value;
    if (comments && !line.help.empty()) out << "  # " << line.help;
    out << '\n';
  }
  for (const auto& child : children_) {
    if (out.tellp() > 0) out << '\n';
    out << child.text(comments);
  }
  return out.str();
}

}  // namespace evenkeel::config
