#include "fed/config/key_effects.h"

#include <gtest/gtest.h>

#include <set>

#include "fed/config/experiment_config.h"

namespace evenkeel::fed {
namespace {

/// Collects the keys of structs with visit(), including those that a default config does not have: "[]" stands for the
/// index of a list of tables, "<name>" for a name that the file chooses.
class KeyCollector {
 public:
  KeyCollector(std::set<std::string>& keys, std::string path) : keys_(keys), path_(std::move(path)) {}

  template <typename T>
  void operator()(std::string_view key, const T& value, std::string_view /*help*/) {
    if constexpr (config::ListOrTable<T>) keys_.insert(full(key));
    if constexpr (requires(T & s, KeyCollector & c) { s.visit(c); })
      nested(key, value);
    else
      keys_.insert(full(key));
  }
  template <typename T>
  void operator()(std::string_view key, const std::optional<T>& /*value*/, std::string_view help) {
    (*this)(key, T{}, help);
  }
  template <typename S>
  requires requires(S& s, KeyCollector& c) { s.visit(c); }
  void operator()(std::string_view key, const std::vector<S>& /*values*/, std::string_view /*help*/) {
    nested(concat(key, "[]"), S{});
  }
  template <typename S>
  void tables(const std::map<std::string, S>& /*values*/, const S& defaults) {
    nested("<name>", defaults);
  }

 private:
  template <typename S>
  void nested(std::string_view key, S value) {
    KeyCollector inner(keys_, full(key));
    value.visit(inner);
  }
  std::string full(std::string_view key) const { return path_.empty() ? std::string(key) : concat(path_, ".", key); }

  std::set<std::string>& keys_;
  std::string path_;
};

std::set<std::string> all_keys() {
  std::set<std::string> keys;
  KeyCollector root(keys, "");
  ExperimentConfig().visit(root);
  std::string tables;
  for (const auto& method : methods::methods()) tables += concat("[method.", method.name, "]\n");
  for (const auto& [key, value] : ExperimentConfig::read(config::Table::parse(tables, "methods")).values())
    if (key.starts_with("method.")) keys.insert(key);
  return keys;
}

TEST(KeyEffects, EveryKeyOfAConfigIsClassifiedOnce) {
  std::set<std::string> classified;
  for (const auto& [key, effect] : key_classes()) EXPECT_TRUE(classified.emplace(key).second) << key << " twice";
  const auto keys = all_keys();
  ASSERT_GT(keys.size(), 150u);
  for (const auto& key : keys)
    EXPECT_TRUE(classified.contains(key)) << key << " has no class: does it change the function that is trained or "
                                          << "scored? Add it to fed/config/key_effects.cpp";
  for (const auto& key : classified) EXPECT_TRUE(keys.contains(key)) << key << " is no key of a config";
}

TEST(KeyEffects, AreFoundForKeysOfListsAndOfTablesWithNames) {
  EXPECT_EQ(effect_of("clients.client[12].budget"), KeyEffect::kSetting);
  EXPECT_EQ(effect_of("data.files.my set.score"), KeyEffect::kFunction);
  EXPECT_EQ(effect_of("data.files.v1.2.train"), KeyEffect::kSetting);
  EXPECT_EQ(effect_of("data.files.score"), KeyEffect::kFunction);
  EXPECT_EQ(effect_of("client_profiles.phone.speed_factor.sigma"), KeyEffect::kByRecord);
  EXPECT_EQ(effect_of("method.one-of-another-program.key"), KeyEffect::kMethod);
  EXPECT_THROW(effect_of("evaluate.new_key"), Error);
}

TEST(KeyEffects, TheFunctionIsChangedByPromptsFormsOfAdaptersAndArithmeticNotBySpeedOrRows) {
  for (const auto* key : {"data.template", "data.chat_template", "lora.alpha", "model.base_format", "evaluate.decode",
                          "train.transport_dtype", "method.a3smoe.rescaler"})
    EXPECT_EQ(effect_of(key), KeyEffect::kFunction) << key;
  for (const auto* key : {"train.merge_tokens", "clients.parallel", "output.dir", "evaluate.items"})
    EXPECT_EQ(effect_of(key), KeyEffect::kNone) << key;
  EXPECT_EQ(effect_of("method.gate_norm"), KeyEffect::kByRecord) << "a checkpoint may renormalise by itself";
}

}  // namespace
}  // namespace evenkeel::fed
