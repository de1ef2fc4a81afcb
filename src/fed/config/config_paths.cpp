#include "fed/config/config_paths.h"

#include <map>

#include "base/plain/data_path.h"
#include "models/causal_lm.h"

namespace evenkeel::fed {
namespace {

PathKey one_path(const std::string& key, std::string& path) { return {.key = key, .who = key, .path = &path}; }

PathKey several(const std::string& key, const std::string& who, std::vector<std::string>& paths) {
  return {.key = key, .who = who, .paths = &paths};
}

void add_set(std::vector<PathKey>& keys, const std::string& table, data::FileSet& set) {
  keys.push_back(several(table + ".train", table + ".train", set.train));
  keys.push_back(several(table + ".test", table + ".test", set.test));
}

/// Calls `change` with each path of the key. An error gets the name of the client that the key belongs to.
template <typename Change>
void change_paths(const PathKey& key, const Change& change) try {
  if (key.path) change(*key.path);
  if (key.paths)
    for (auto& path : *key.paths) change(path);
} catch (const Error& error) {
  throw key.who == key.key ? error : error.with_context(key.who);
}

/// Replaces patterns by the absolute paths of the files that they match now.
void find_now(const PathKey& key) try {
  *key.paths = data::found_files(*key.paths);
  for (auto& file : *key.paths) file = absolute_path(file);
} catch (const Error& error) {
  throw error.with_context(key.who);
}

}  // namespace

std::vector<PathKey> path_keys(ExperimentConfig& config) {
  std::vector<PathKey> keys = {one_path("model.path", config.model.path),
                               one_path("model.base_cache", config.model.base_cache),
                               one_path("lora.init", config.lora.init), one_path("data.path", config.data.path),
                               one_path("data.chat_template", config.data.chat_template)};
  add_set(keys, "data.files", config.data.files);
  for (auto& [name, set] : config.data.files.sets) add_set(keys, concat("data.files.", name), set);
  auto& clients = config.clients;
  for (size_t i = 0; !clients.rows_elsewhere() && i < clients.client.size(); ++i) {
    const auto key = concat("clients.client[", i, "]"), who = clients.who(static_cast<int64_t>(i));
    keys.push_back(several(key + ".data", who, clients.client[i].data));
    keys.push_back(several(key + ".test", who, clients.client[i].test));
  }
  auto& bert = config.evaluate.bert_score;
  keys.push_back(one_path("evaluate.bert_score.encoder", bert.encoder));
  keys.push_back(one_path("evaluate.bert_score.baseline", bert.baseline));
  keys.push_back(one_path("output.dir", config.output.dir));
  return keys;
}

void ExperimentConfig::expand_home_in_paths() {
  for (const auto& key : path_keys(*this))
    change_paths(key, [&](std::string& path) { path = expand_home(path, key.key); });
}

void expand_paths(ExperimentConfig& config) {
  for (const auto& key : path_keys(config))
    if (key.key != "model.path" && key.key != "output.dir")
      change_paths(key, [&](std::string& path) { path = expand_data_path(path, key.key).string(); });
}

void find_paths(ExperimentConfig& config, const KeyFilter& is_wanted) {
  for (const auto& key : path_keys(config)) {
    if (is_wanted && !is_wanted(key.key)) continue;
    if (key.paths)
      find_now(key);
    else if (key.key == "model.path")
      *key.path = models::settled_model_path(*key.path);
    else if (key.key != "output.dir")
      *key.path = absolute_path(*key.path);
  }
}

ExperimentConfig with_inputs(ExperimentConfig asked) {
  expand_paths(asked);
  find_paths(asked);
  return asked;
}

void take_paths(ExperimentConfig& config, ExperimentConfig from, const KeyFilter& is_same) {
  std::map<std::string, PathKey> known;
  for (auto& key : path_keys(from)) known.emplace(key.key, key);
  for (const auto& [key, who, path, paths] : path_keys(config)) {
    const auto same = known.find(key);
    if (same == known.end() || !is_same(key)) continue;
    if (path) *path = *same->second.path;
    if (paths) *paths = *same->second.paths;
  }
}

}  // namespace evenkeel::fed
