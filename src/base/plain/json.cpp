#include "base/plain/json.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <unordered_set>

#include "base/plain/files.h"
#include "base/plain/text.h"

namespace evenkeel {
namespace {

/// Measures depth and number of values from the characters of the text, before anything is parsed.
class Measure {
 public:
  Measure(std::string_view text, std::string_view origin, ErrorKind kind, const JsonLimits& limits)
      : text_(text), origin_(origin), kind_(kind), limits_(limits) {}

  void check() {
    require(text_.size() <= limits_.bytes, text_.size(), " bytes of JSON, allowed: up to ", limits_.bytes);
    for (size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '"')
        i = end_of_string(i);
      else if (c == '[' || c == '{')
        open(i);
      else if (c == ']' || c == '}')
        depth_ -= depth_ > 0 ? 1 : 0;
      else if (c == ',' || c == ':') {
        keys_ += c == ':' ? 1 : 0;
        count(i);
      } else
        require(c != '\0', "not valid JSON at byte ", i + 1, " of ", text_.size(), ": a NUL byte");
    }
  }

  /// Returns the number of keys of a valid JSON text. Call it after check().
  size_t keys() const { return keys_; }

 private:
  template <typename... Parts>
  void require(bool condition, const Parts&... parts) const {
    if (!condition) [[unlikely]]
      throw Error(kind_, concat(shown(origin_, 300), ": ", parts...));
  }

  void open(size_t i) {
    require(++depth_ <= limits_.depth, "lists and objects lie more than ", limits_.depth, " deep at byte ", i + 1,
            " of ", text_.size(), ", allowed: up to ", limits_.depth);
    count(i);
  }

  void count(size_t i) {
    require(++values_ <= limits_.values, "more than ", limits_.values, " values and keys at byte ", i + 1, " of ",
            text_.size(), ", allowed: up to ", limits_.values);
  }

  /// Returns the position of the closing quote of the string that begins at `begin`.
  size_t end_of_string(size_t begin) const {
    size_t i = begin + 1;
    while (i < text_.size() && text_[i] != '"') i += text_[i] == '\\' ? 2 : 1;
    return i;
  }

  std::string_view text_, origin_;
  ErrorKind kind_;
  const JsonLimits& limits_;
  size_t depth_ = 0, values_ = 0, keys_ = 0;
};

/// Finds keys that stand twice in one object, during parsing.
class KeyRepeats {
 public:
  /// \param list  as of repeated_keys()
  explicit KeyRepeats(std::string_view list) : list_(list) {}

  template <typename J>
  void see(Json::parse_event_t event, const J& value) {
    using Event = Json::parse_event_t;
    const bool begins = event == Event::object_start || event == Event::array_start;
    if ((begins || event == Event::value) && !open_.empty()) ++open_.back().entries;
    if (begins) open_.push_back({.is_list = event == Event::array_start});
    if (event == Event::object_end || event == Event::array_end) open_.pop_back();
    if (event == Event::key) see_key(value.template get<std::string>());
  }

  std::vector<RepeatedKey> found{};

 private:
  /// A list or an object that has begun and not ended.
  struct Open {
    bool is_list = false;
    size_t entries = 0;  // those that have begun
    std::string key{};   // the last one of an object
    std::unordered_set<std::string> keys{};
  };

  void see_key(std::string key) {
    auto& object = open_.back();
    object.key = key;
    if (!object.keys.insert(key).second) found.push_back({std::move(key), entry()});
  }

  std::optional<size_t> entry() const {
    const size_t level = list_.empty() ? 0 : 1;
    if (open_.size() < level + 2 || !open_[level].is_list || open_.front().key != list_) return std::nullopt;
    return open_[level].entries - 1;
  }

  std::string_view list_;
  std::vector<Open> open_;
};

/// Returns the number of keys of all objects in a value.
template <typename J>
size_t keys_in(const J& value) {
  size_t keys = value.is_object() ? value.size() : 0;
  if (value.is_structured())
    for (const auto& part : value) keys += keys_in(part);
  return keys;
}

/// Parses a valid text again, to find its repeated keys.
std::vector<RepeatedKey> find_repeated_keys(std::string_view text, std::string_view list) {
  KeyRepeats repeats(list);
  const auto see = [&](int /*depth*/, Json::parse_event_t event, const Json& value) {
    repeats.see(event, value);
    return true;
  };
  std::ignore = Json::parse(text.begin(), text.end(), see);
  return std::move(repeats.found);
}

/// Returns what is wrong where a JSON text breaks off, if it is a number that only other programs write.
std::string_view no_number(std::string_view text, size_t byte) {
  const auto rest = text.substr(std::min(text.size(), byte - std::min<size_t>(byte, 1)));
  if (rest.starts_with("NaN")) return ": NaN is no JSON, allowed: null, or no such key";
  return rest.starts_with("Infinity") ? ": Infinity is no JSON, allowed: null, or no such key" : "";
}

/// Writes a value until the text is long enough. Levels below the third are omitted.
class ShownJson {
 public:
  explicit ShownJson(size_t limit) : limit_(limit) {}

  std::string text(const Json& value) {
    if (value.is_string()) return concat('"', shown(value.get_ref<const std::string&>(), limit_ - 2), '"');
    write(value, 0);
    if (text_.size() <= limit_) return text_;
    return concat(text_.substr(0, text_.find_last_of(",{[", limit_ / 2) + 1), "... (",
                  value.is_array() ? "a list of " : "an object of ", value.size(), ")");
  }

 private:
  void write(const Json& value, int depth) {
    constexpr int kDeepest = 3;
    if (value.is_string())
      text_ += concat('"', shown(value.get_ref<const std::string&>(), limit_), '"');
    else if (!value.is_structured())
      text_ += value.dump();
    else if (depth == kDeepest && !value.empty())
      text_ += value.is_array() ? "[...]" : "{...}";
    else
      write_container(value, depth);
  }

  void write_container(const Json& value, int depth) {
    text_ += value.is_array() ? '[' : '{';
    std::string_view gap;
    for (auto item = value.begin(); item != value.end() && text_.size() <= limit_; ++item, gap = ",") {
      text_ += gap;
      if (value.is_object()) text_ += concat('"', shown(item.key(), limit_), "\":");
      write(*item, depth + 1);
    }
    text_ += value.is_array() ? ']' : '}';
  }

  size_t limit_;
  std::string text_;
};

std::string limits_text(int64_t least, int64_t most) {
  using Limits = std::numeric_limits<int64_t>;
  if (least == Limits::min() && most == Limits::max()) return "whole numbers of 64 bits";
  if (most == Limits::max()) return concat(least, " or more");
  return concat(least, " to ", most);
}

}  // namespace

template <typename J>
J parse_json(std::string_view text, std::string_view origin, ErrorKind kind, const JsonLimits& limits) {
  Measure measure(text, origin, kind, limits);
  measure.check();
  try {
    auto value = J::parse(text.begin(), text.end());
    if (limits.unique_keys && keys_in(value) != measure.keys()) {
      const auto repeated = find_repeated_keys(text, "");
      throw Error(kind, concat(origin, ": ", repeated.at(0).text()));
    }
    return value;
  } catch (const Json::parse_error& error) {
    throw Error(kind, concat(origin, ": not valid JSON at byte ", error.byte, " of ", text.size(),
                             no_number(text, error.byte)));
  } catch (const Json::out_of_range&) {
    throw Error(kind, concat(origin, ": not valid JSON: a number too large for 64 bits of floating point"));
  }
}

template Json parse_json(std::string_view, std::string_view, ErrorKind, const JsonLimits&);
template OrderedJson parse_json(std::string_view, std::string_view, ErrorKind, const JsonLimits&);

std::string RepeatedKey::text() const { return concat("the key ", shown(Json(key)), " stands twice in one object"); }

std::vector<RepeatedKey> repeated_keys(std::string_view text, const Json& value, std::string_view list) {
  const JsonLimits limits;
  Measure measure(text, "", kData, limits);
  measure.check();
  return keys_in(value) == measure.keys() ? std::vector<RepeatedKey>() : find_repeated_keys(text, list);
}

template <typename J>
J load_json(const std::filesystem::path& file, ErrorKind kind, const JsonLimits& limits) {
  return parse_json<J>(read_file(file, limits.bytes), file.string(), kind, limits);
}
template Json load_json(const std::filesystem::path&, ErrorKind, const JsonLimits&);
template OrderedJson load_json(const std::filesystem::path&, ErrorKind, const JsonLimits&);

template <std::same_as<Json> J>
std::string shown(const J& value, size_t limit) {
  return ShownJson(limit).text(value);
}
template std::string shown(const Json&, size_t);

JsonView::JsonView(const Json& document, std::string origin, ErrorKind kind)
    : value_(&document), document_(std::make_shared<Document>(Document{std::move(origin), kind})) {}

std::string JsonView::path() const {
  if (!outer_) return {};
  const std::string outer = outer_->path();
  if (key_ == nullptr) return concat(outer, "[", index_, "]");
  return outer.empty() ? shown(*key_) : concat(outer, ".", shown(*key_));
}

std::string JsonView::place() const {
  const std::string inside = path();
  return inside.empty() ? document_->origin : concat(document_->origin, ": ", inside);
}

void JsonView::expected(std::string_view what) const { refuse(" is ", shown(*value_), ", expected ", what); }

std::optional<JsonView> JsonView::find(std::string_view key) const {
  const auto found = object().value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonView(*found, as_outer(), &found.key(), kNone);
}

JsonView JsonView::at(std::string_view key) const {
  const auto found = object().value_->find(key);
  if (found == value_->end())
    throw Error(document_->kind, concat(place(), path().empty() ? ": " : ".", shown(key), " is missing"));
  return JsonView(*found, as_outer(), &found.key(), kNone);
}

JsonView JsonView::at(size_t index) const {
  list().require(index < size(), " has ", size(), " entries, expected at least ", index + 1);
  return JsonView((*value_)[index], as_outer(), nullptr, index);
}

std::vector<JsonView> JsonView::items() const {
  const auto outer = list().as_outer();
  std::vector<JsonView> result;
  result.reserve(size());
  for (const auto& item : *value_) result.push_back(JsonView(item, outer, nullptr, result.size()));
  return result;
}

std::vector<JsonView> JsonView::members() const {
  const auto outer = object().as_outer();
  std::vector<JsonView> result;
  result.reserve(size());
  for (auto item = value_->begin(); item != value_->end(); ++item)
    result.push_back(JsonView(*item, outer, &item.key(), kNone));
  return result;
}

const JsonView& JsonView::object() const {
  if (!value_->is_object()) expected("an object");
  return *this;
}

const JsonView& JsonView::list() const {
  if (!value_->is_array()) expected("a list");
  return *this;
}

const std::string& JsonView::string() const {
  if (!value_->is_string()) expected("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonView::flag() const {
  if (!value_->is_boolean()) expected("true or false");
  return value_->get<bool>();
}

double JsonView::number() const {
  if (!value_->is_number()) expected("a number");
  return value_->get<double>();
}

int64_t JsonView::integer(int64_t least, int64_t most) const {
  if (!value_->is_number_integer()) expected("a whole number");
  const bool fits = !value_->is_number_unsigned() || value_->get<uint64_t>() <= uint64_t{INT64_MAX};
  const int64_t value = fits ? value_->get<int64_t>() : 0;
  // The text is built for an error only, because vocabularies are read with this function.
  if (!fits || value < least || value > most) refuse(" is ", shown(*value_), ", allowed: ", limits_text(least, most));
  return value;
}

std::vector<int64_t> JsonView::integers(int64_t least, int64_t most) const {
  std::vector<int64_t> result;
  for (const auto& item : items()) result.push_back(item.integer(least, most));
  return result;
}

std::vector<std::string> JsonView::strings() const {
  std::vector<std::string> result;
  for (const auto& item : items()) result.push_back(item.string());
  return result;
}

int64_t JsonView::integer_or(std::string_view key, int64_t otherwise, int64_t least, int64_t most) const {
  const auto member = find(key);
  return member ? member->integer(least, most) : otherwise;
}

double JsonView::number_or(std::string_view key, double otherwise) const {
  const auto member = find(key);
  return member ? member->number() : otherwise;
}

bool JsonView::flag_or(std::string_view key, bool otherwise) const {
  const auto member = find(key);
  return member ? member->flag() : otherwise;
}

std::string JsonView::string_or(std::string_view key, std::string_view otherwise) const {
  const auto member = find(key);
  return member ? member->string() : std::string(otherwise);
}

}  // namespace evenkeel
