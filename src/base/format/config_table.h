/// \file  Reads and writes strict configuration. A struct lists its fields once in visit(). Reader reads them from
/// TOML, and Writer writes all values as TOML, on request with the help text of each key as a comment. Does not depend
/// on LibTorch. Only config_table.cpp includes toml++.
///
/// Example:
///   struct OptimizerConfig {
///     double lr = 2e-4;
///     Activity activity = Activity::kStepUnion;
///     void visit(auto& field) {
///       field("lr", lr, "learning rate, constant, per step");
///       field("activity", activity, "when an expert counts as active");
///     }
///   };
///   constexpr auto names(Activity) { return std::array{EnumName{"step_union", Activity::kStepUnion}, ...}; }
///
/// The type of a field may be
/// - int64_t, double, bool, std::string, a vector of these except bool, or Names (one string or several)
/// - an enum with `names()`
/// - a nested struct with visit(), or a vector of such structs (`[[section.key]]`)
/// - an optional of any scalar; empty: the key is absent
/// - a struct that TOML may give as a list (ListOrTable)
///
/// A map by name reads all remaining sub-tables: `field.tables(map, defaults)`.
///
/// An unknown key is an error that names its path and lists the known keys. The error for a value of the wrong type
/// names the expected type. A struct may have `resolve(const config::Table&)`, which is called after its fields were
/// read. It sets values that depend on other keys and checks values with Table's checks; their errors name key, value,
/// allowed values, file and line.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/format/config_text.h"
#include "base/format/limits.h"
#include "base/plain/error.h"

namespace evenkeel::config {

/// One name of an enumerator. `constexpr auto names(E)` next to the enum returns a std::array of EnumName objects.
template <typename E>
struct EnumName {
  std::string_view name;
  E value;
};

template <typename E>
concept NamedEnum = std::is_enum_v<E> && requires {
  names(E{});
};

/// Returns the name of an enumerator, or "?" for a value without a name.
template <NamedEnum E>
std::string_view name_of(E value) {
  for (const auto& entry : names(E{}))
    if (entry.value == value) return entry.name;
  return "?";
}

/// A list of names that TOML may give as one string: `"a"` or `["a", "b"]`. A list of one name is written as a string.
struct Names : std::vector<std::string> {
  Names() = default;
  Names(std::string one) { push_back(std::move(one)); }  // NOLINT(google-explicit-constructor)
  Names(const char* one) { emplace_back(one); }          // NOLINT(google-explicit-constructor)
  Names(std::initializer_list<std::string> several) : std::vector<std::string>(several) {}
};

/// Matches structs that TOML may give as a list or as a table, e.g. `budgets = [0.5, 1.0]` or `budgets = { values =
/// [0.5, 1.0] }`. A list is read into `list`, a table through visit(). Writer writes a list if `listed()` returns true.
template <typename S>
concept ListOrTable = requires(const S& value) {
  value.list;
  { value.listed() } -> std::same_as<bool>;
};

/// Refers to a TOML table and knows its path ("method.ub-smoe"). It is cheap to copy and keeps the document alive.
/// Copies share the document: set() changes it for all of them.
class Table {
 public:
  /// Parses a file of at most 16 MiB. \throws kConfig naming file, line and column of a syntax error; kIo.
  static Table load(const std::filesystem::path& file);
  /// Parses a text. \param origin  the name of the source, for errors \throws kConfig as load().
  static Table parse(std::string_view text, std::string_view origin);

  /// Applies an assignment of `--set`, "a.b=value". The value is TOML; a bare word, or a list of bare words, is read as
  /// strings. A table is merged into the table under that key, at every depth: keys that it does not name keep their
  /// values. A list or a scalar replaces the old value. Call it before table() and tables(), because it may replace
  /// sub-tables. \throws kConfig if the value is neither TOML nor bare words, or if a table meets a scalar or the
  /// reverse
  void set(std::string_view assignment);
  /// Returns true if the table holds a value under a key with dots, as "train.rounds".
  bool contains_path(std::string_view path) const;

  /// Returns the path of the table; empty for the root.
  const std::string& path() const { return path_; }
  /// Returns the keys of the table, sub-tables included.
  std::vector<std::string> keys() const;
  bool contains(std::string_view key) const;
  /// Return true if `key` is present and holds a list, or a table.
  bool holds_list(std::string_view key) const;
  bool holds_table(std::string_view key) const;
  /// Returns the sub-table under `key`, or an empty one when the key is absent. \throws kConfig when the key holds
  /// anything else; the message names `expected`.
  Table table(std::string_view key, std::string_view expected = "a table") const;
  /// Returns the tables of a list, with the paths "path.key[0]" and so on; none when the key is absent. \throws kConfig
  /// when the key holds anything else.
  std::vector<Table> tables(std::string_view key) const;

  /// The next functions return the value of `key`, or nothing when the key is absent. \throws kConfig when the value
  /// has another type or is not finite.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  ///< an integer is a number too
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;
  std::optional<std::vector<std::string>> strings(std::string_view key) const;  ///< one string is a list of one
  std::optional<Names> names(std::string_view key) const;

  /// Returns the table as TOML, with paths of sub-tables relative to it, without comments.
  std::string text() const;

  /// Returns the key with the path of the table, e.g. "method.ub-smoe.momentum", for messages.
  std::string full_key(std::string_view key) const;
  /// Returns the place of a key: " (demo.toml, line 12)" or " (from --set)"; " (demo.toml)" when the key is absent.
  std::string place_of(std::string_view key) const;
  /// Throws kConfig "<full key> is <value>, allowed: <allowed>" with the place, unless `good` is true.
  template <typename T>
  void check(bool good, std::string_view key, const T& value, std::string_view allowed) const {
    EK_CHECK(good, kConfig, full_key(key), " is ", value, ", allowed: ", allowed, place_of(key));
  }
  /// Works as check() for one entry of a list: "<full key> holds <value>, ...".
  template <typename T>
  void check_entry(bool good, std::string_view key, const T& value, std::string_view allowed) const {
    EK_CHECK(good, kConfig, full_key(key), " holds ", value, ", allowed: ", allowed, place_of(key));
  }
  /// Each of the next functions calls the function of the same name in base/format/limits.h with the full key and the
  /// place. check_integer() requires [least, most]; check_above_zero(): 0 < value <= limits::kScale; check_from_zero():
  /// 0 <= value <= limits::kScale; check_share(): 0 < value <= 1.
  void check_integer(std::string_view key, int64_t value, int64_t least, int64_t most) const {
    limits::check_integer(full_key(key), value, least, most, place_of(key));
  }
  void check_above_zero(std::string_view key, double value) const {
    limits::check_above_zero(full_key(key), value, place_of(key));
  }
  void check_from_zero(std::string_view key, double value) const {
    limits::check_from_zero(full_key(key), value, place_of(key));
  }
  void check_share(std::string_view key, double value) const {
    limits::check_share(full_key(key), value, place_of(key));
  }

 private:
  struct Document;
  std::string origin() const;
  Table child(const void* node, std::string path, std::string_view expected) const;

  std::shared_ptr<Document> document_;
  const void* node_ = nullptr;  // the toml::table inside the document
  std::string path_;
};

/// Reads `value` from `table`, strictly. Fields without a key in the table are unchanged. The entries of `[[key]]` are
/// appended to the field; every other key replaces its value.
/// \param also_known  keys of the table that another reader uses
template <typename S>
void read(const Table& table, S& value, std::span<const std::string_view> also_known = {});

/// Reads a struct from a table; the `field` argument of visit(). Keys that visit() does not list are errors.
class Reader {
 public:
  explicit Reader(const Table& table, std::span<const std::string_view> also_known = {}) : table_(table) {
    for (auto key : also_known) known_.emplace(key);
  }

  template <typename T>
  void operator()(std::string_view key, T& value, std::string_view /*help*/) {
    known_.emplace(key);
    read(key, value);
  }

  /// Reads every sub-table that no field has read yet into an entry of `values`. Each entry starts as a copy of
  /// `defaults`.
  template <typename S>
  void tables(std::map<std::string, S>& values, const S& defaults) {
    for (const auto& key : table_.keys()) {
      if (known_.contains(key) || !table_.holds_table(key)) continue;
      known_.emplace(key);
      read(key, values.try_emplace(key, defaults).first->second);
    }
  }

  /// Call it after visit(). \throws kConfig naming the first unknown key and all known ones.
  void finish() const;

 private:
  template <typename T>
  static void assign(T& value, const std::optional<T>& given) {
    if (given) value = *given;
  }
  void read(std::string_view key, int64_t& value) { assign(value, table_.integer(key)); }
  void read(std::string_view key, double& value) { assign(value, table_.number(key)); }
  void read(std::string_view key, bool& value) { assign(value, table_.boolean(key)); }
  void read(std::string_view key, std::string& value) { assign(value, table_.string(key)); }
  void read(std::string_view key, std::vector<int64_t>& value) { assign(value, table_.integers(key)); }
  void read(std::string_view key, std::vector<double>& value) { assign(value, table_.numbers(key)); }
  void read(std::string_view key, std::vector<std::string>& value) { assign(value, table_.strings(key)); }
  void read(std::string_view key, Names& value) { assign(value, table_.names(key)); }

  template <NamedEnum E>
  void read(std::string_view key, E& value) {
    const auto given = table_.string(key);
    if (!given) return;
    std::vector<std::string_view> allowed;
    for (const auto& entry : names(E{})) {
      if (entry.name == *given) {
        value = entry.value;
        return;
      }
      allowed.push_back(entry.name);
    }
    fail(kConfig, table_.full_key(key), " is \"", *given, "\", allowed: ", join(allowed), table_.place_of(key));
  }

  template <typename T>
  void read(std::string_view key, std::optional<T>& value) {
    if (table_.contains(key)) read(key, value.emplace());
  }

  template <typename S>
  requires requires(S& s, Reader& r) { s.visit(r); }
  void read(std::string_view key, S& value) {
    if constexpr (ListOrTable<S>) {
      if (table_.holds_list(key)) return read(key, value.list);
      read_into(table_.table(key, "a list or a table"), value);
    } else {
      read_into(table_.table(
                    key, requires { value.name; } ? "a table, in which `name` is a key" : "a table"),
                value);
    }
  }

  template <typename S>
  requires requires(S& s, Reader& r) { s.visit(r); }
  void read(std::string_view key, std::vector<S>& values) {
    for (const auto& entry : table_.tables(key)) read_into(entry, values.emplace_back());
  }

  template <typename S>
  static void read_into(const Table& table, S& value, std::span<const std::string_view> also_known = {}) {
    Reader reader(table, also_known);
    value.visit(reader);
    reader.finish();
    if constexpr (requires { value.resolve(table); }) value.resolve(table);
  }
  template <typename S>
  friend void evenkeel::config::read(const Table& table, S& value, std::span<const std::string_view> also_known);

  Table table_;
  std::set<std::string, std::less<>> known_;
};

/// Writes a struct as TOML; the `field` argument of visit(). Scalars come before sub-tables, in the order of visit().
class Writer {
 public:
  explicit Writer(std::string path = {}) : path_(std::move(path)) {}

  template <typename T>
  void operator()(std::string_view key, const T& value, std::string_view help) {
    if constexpr (NamedEnum<T>)
      scalar(key, std::string(name_of(value)), help);
    else if constexpr (ListOrTable<T>)
      value.listed() ? scalar(key, value.list, help) : nested(key, value);
    else if constexpr (requires(T & s, Writer & w) { s.visit(w); })
      nested(key, value);
    else
      scalar(key, value, help);
  }
  template <typename T>
  void operator()(std::string_view key, const std::optional<T>& value, std::string_view help) {
    if (value) (*this)(key, *value, help);
  }
  template <typename S>
  requires requires(S& s, Writer& w) { s.visit(w); }
  void operator()(std::string_view key, const std::vector<S>& values, std::string_view /*help*/) {
    for (const auto& value : values) {
      nested(key, value);
      children_.back().entry_ = true;
    }
  }

  /// Writes every entry of `values` as a sub-table.
  template <typename S>
  void tables(const std::map<std::string, S>& values, const S& /*defaults*/) {
    for (const auto& [key, value] : values) nested(key, value);
  }

  /// Returns the TOML text. With `comments`, a comment with its help text follows each key, as
  /// `evenkeel train CONFIG --print-config` prints it.
  std::string text(bool comments = false) const;

  /// Writes the fields of `value` as a sub-table.
  template <typename S>
  void nested(std::string_view key, S value) {
    Writer child(path_.empty() ? std::string(key) : concat(path_, ".", key));
    value.visit(child);
    children_.push_back(std::move(child));
  }

 private:
  struct Line {
    std::string key, value, help;
  };
  /// Adds a key with any value that toml_text() takes.
  template <typename T>
  void scalar(std::string_view key, const T& value, std::string_view help) {
    lines_.push_back({std::string(key), toml_text(value), std::string(help)});
  }
  void scalar(std::string_view key, const Names& value, std::string_view help);

  std::string path_;
  bool entry_ = false;  // true: this table is an entry of a list of tables, `[[key]]`
  std::vector<Line> lines_;
  std::vector<Writer> children_;
};

template <typename S>
void read(const Table& table, S& value, std::span<const std::string_view> also_known) {
  Reader::read_into(table, value, also_known);
}

/// Returns an S with its default values, replaced by the keys of `table`.
template <typename S>
S read(const Table& table) {
  S value;
  read(table, value);
  return value;
}

/// Returns `value` as TOML.
template <typename S>
std::string write(S value, bool comments = false) {
  Writer writer;
  value.visit(writer);
  return writer.text(comments);
}

}  // namespace evenkeel::config
