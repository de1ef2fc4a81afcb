#include "apps/config_keys.h"

#include <algorithm>
#include <sstream>

#include "cluster/options.h"
#include "fed/config/experiment_config.h"

namespace evenkeel::apps {
namespace {

std::string type_of(const std::string& toml) {
  if (toml.starts_with('"')) return "text";
  if (toml.starts_with('[')) return "list";
  if (toml == "true" || toml == "false") return "boolean";
  return toml.find_first_of(".en") == std::string::npos ? "integer" : "number";  // as written by config::Writer
}

/// Parses "key = value  # help".
ConfigKey key_of(const std::string& path, const std::string& line) {
  const auto equals = line.find(" = "), comment = line.find("  # ");
  ConfigKey key{.key = path.empty() ? line.substr(0, equals) : concat(path, ".", line.substr(0, equals)),
                .type = {},
                .value = line.substr(equals + 3, comment == line.npos ? comment : comment - equals - 3),
                .allowed = {},
                .help = comment == line.npos ? "" : line.substr(comment + 4)};
  key.type = type_of(key.value);
  return key;
}

/// Parses the output of config::Writer::text(true).
std::vector<ConfigKey> keys_of(const std::string& toml) {
  std::vector<ConfigKey> keys;
  std::istringstream lines(toml);
  std::string path;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with('['))
      path = line.substr(1, line.size() - 2);
    else if (!line.empty())
      keys.push_back(key_of(path, line));
  return keys;
}

template <typename T>
concept HasFields = requires(T& value, config::Writer& writer) {
  value.visit(writer);
};

/// Collects the keys of structs with visit(), including those that a default config does not write.
class KeyCollector {
 public:
  KeyCollector(std::string path, std::vector<ConfigKey>& keys) : path_(std::move(path)), keys_(keys) {}

  template <typename T>
  void operator()(std::string_view key, const T& value, std::string_view help) {
    if constexpr (config::ListOrTable<T>) {
      add(key, value.list, help);
      nested(key, value);
    } else if constexpr (HasFields<T>) {
      nested(key, value);
    } else {
      add(key, value, help);
    }
  }
  template <typename T>
  void operator()(std::string_view key, const std::optional<T>&, std::string_view help) {
    add(key, T{}, help);
    keys_.back().value.clear();
  }
  template <HasFields S>
  void operator()(std::string_view key, const std::vector<S>&, std::string_view /*help*/) {
    nested(concat(key, "[]"), S{});
  }
  template <typename Map, typename S>
  void tables(const Map&, const S& defaults) {
    nested("<name>", defaults);
  }

 private:
  template <typename T>
  void add(std::string_view key, const T& value, std::string_view help) {
    config::Writer writer;
    writer(key, value, help);
    keys_.push_back(keys_of(writer.text(true)).front());
    keys_.back().key = full(key);
  }
  template <typename S>
  void nested(std::string_view key, S value) {
    KeyCollector inner(full(key), keys_);
    value.visit(inner);
  }
  std::string full(std::string_view key) const { return path_.empty() ? std::string(key) : concat(path_, ".", key); }

  std::string path_;
  std::vector<ConfigKey>& keys_;
};

/// Returns the keys of `[method]` and of the tables of all methods.
std::vector<ConfigKey> method_keys() {
  std::string toml;
  for (const auto& method : methods::methods()) toml += concat("[method.", method.name, "]\n");
  config::Writer writer;
  writer.nested("method", fed::MethodSection::read(config::Table::parse(toml, "methods").table("method")));
  return keys_of(writer.text(true));
}

/// Returns values that are out of range for any bounded key of the type.
std::vector<std::string> outside(const std::string& type) {
  if (type == "integer") return {"-9000000000000000000"};
  if (type == "number") return {"-1e300"};
  if (type == "list") return {"[-1e300]", "[-1]", "[\"?\"]"};
  return {"\"?\""};
}

/// Returns what a table must contain in addition, so that the key is checked.
std::string_view beside(const std::string& table, const std::string& line) {
  const bool is_profile = table == "client_profiles.probe" && !line.starts_with("tokens_per_second");
  return is_profile ? "tokens_per_second = [1.0]\n" : "";
}

/// Returns a minimal config in which the key has the value.
std::string config_with(const ConfigKey& key, const std::string& value) {
  const auto dot = key.key.rfind('.');
  const auto line = concat(key.key.substr(dot + 1), " = ", value, "\n");
  if (dot == std::string::npos) return line;
  auto table = key.key.substr(0, dot);
  if (const auto name = table.find("<name>"); name != table.npos) table.replace(name, 6, "probe");
  if (!table.ends_with("[]")) return concat("[", table, "]\n", beside(table, line), line);
  return concat("[[", table.substr(0, table.size() - 2), "]]\n", line);
}

void read_key(const ConfigKey& key, const std::string& toml) {
  const auto table = config::Table::parse(toml, "probe");
  if (key.key.starts_with("cluster."))
    config::read<cluster::ClusterOptions>(table.table("cluster"));
  else
    (void)fed::ExperimentConfig::read(table);
}

/// Returns what follows "allowed: " in an error about the key, without the place and infinite bounds.
std::string allowed_in(const std::string& error, const std::string& key) {
  const std::string mark = ", allowed: ";
  const auto begin = error.find(mark);
  const bool is_of_key = error.find(key.substr(key.rfind('.') + 1)) < begin;
  if (begin == error.npos || !is_of_key) return {};
  auto text = error.substr(begin + mark.size());
  for (const auto& end : {std::string(" (probe"), concat(", up to ", limits::kAny), std::string(", which holds none")})
    text = text.substr(0, text.rfind(end));
  return text;
}

/// Returns the allowed values, from the error about an invalid one.
std::string allowed_of(const ConfigKey& key) {
  if (key.type == "boolean") return "true, false";
  for (const auto& value : outside(key.type)) try {
      read_key(key, config_with(key, value));
    } catch (const Error& error) {
      if (auto allowed = allowed_in(error.what(), key.key); !allowed.empty()) return allowed;
    }
  return {};
}

std::string sections(const std::vector<ConfigKey>& keys) {
  std::vector<std::string> names;
  for (const auto& key : keys)
    if (const auto name = key.key.substr(0, key.key.find('.'));
        name != key.key && (names.empty() || names.back() != name))
      names.push_back(name);
  for (const auto& method : methods::methods()) names.emplace_back(method.name);
  return join(names);
}

bool is_method(const std::string& name) {
  return std::any_of(methods::methods().begin(), methods::methods().end(),
                     [&](const auto& method) { return method.name == name; });
}

}  // namespace

std::vector<ConfigKey> config_keys() {
  std::vector<ConfigKey> keys;
  KeyCollector root("", keys);
  fed::ExperimentConfig{}.visit(root);
  for (auto& key : method_keys()) keys.push_back(std::move(key));
  KeyCollector cluster("cluster", keys);
  cluster::ClusterOptions{}.visit(cluster);
  for (auto& key : keys) key.allowed = allowed_of(key);
  return keys;
}

std::vector<ConfigKey> config_keys(const std::string& section) {
  const auto all = config_keys();
  const auto table = concat(is_method(section) ? "method." : "", section, ".");
  std::vector<ConfigKey> keys;
  std::copy_if(all.begin(), all.end(), std::back_inserter(keys),
               [&](const auto& key) { return key.key.starts_with(table); });
  EK_CHECK(!keys.empty() || is_method(section), kConfig, "list keys: \"", section,
           "\" is no section of a config and no method, allowed: ", sections(all));
  return keys;
}

}  // namespace evenkeel::apps
