// Every file under configs/ is valid, and the paper's client patterns say what they are named after.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/plain/files.h"
#include "fed/config/sampling.h"
#include "fed/run/experiment.h"
#include "train/pretraining.h"

namespace evenkeel::fed {
namespace {

const fs::path kConfigs = fs::path(EVENKEEL_SOURCE_DIR) / "configs";

std::vector<fs::path> toml_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  return files;
}

/// Returns false for studies (src/study/), their work, the paper's printed tables and configs of `evenkeel pretrain`.
bool is_run(const fs::path& file) {
  const auto table = config::Table::load(file);
  return !table.holds_table("study") && !table.contains("table") && !table.contains("work") &&
         fs::relative(file, kConfigs).string().find("pretrain") == std::string::npos;
}

RunConfig resolved(const fs::path& file, std::string_view setting = "threads=1") {
  ::setenv("EVENKEEL_DATA", "data", /*overwrite=*/0);
  auto table = config::Table::load(file);
  table.set(setting);
  auto config = ExperimentConfig::read(table);
  config.model.compute_dtype = ComputeDtype::kFloat32;  // "auto" would measure this machine
  return settle(std::move(config), {});
}

TEST(ShippedConfigs, AreValidAndSayWhatTheyAre) {
  for (const auto& file : toml_files(kConfigs)) {
    EXPECT_TRUE(read_file(file).starts_with("# ")) << file << " has no first line for `evenkeel list configs`";
    if (fs::relative(file, kConfigs).string().find("pretrain") != std::string::npos) {
      EXPECT_NO_THROW(config::read<train::PretrainConfig>(config::Table::load(file))) << file;
    } else if (is_run(file)) {
      EXPECT_NO_THROW(resolved(file)) << file;
    }
  }
}

TEST(ShippedConfigs, PinWhatMakesRunsComparable) {
  ::setenv("EVENKEEL_DATA", "data", /*overwrite=*/0);
  for (const auto& file : toml_files(kConfigs)) {
    if (!is_run(file)) continue;
    const auto config = ExperimentConfig::load(file);
    EXPECT_GT(config.threads, 0) << file << ": threads = 0 depends on the machine";
    EXPECT_EQ(config.model.compute_dtype, ComputeDtype::kFloat32) << file << ": auto is measured on the machine";
  }
}

models::ModelSpec spec_of(bool sparse) {
  models::ModelSpec spec;
  spec.num_experts = sparse ? 64 : 0;
  spec.top_k = sparse ? 8 : 0;
  return spec;
}

using Histogram = std::map<int64_t, int64_t>;  // K or rank -> clients that have it
Histogram histogram(const std::vector<methods::ClientProfile>& clients, int64_t methods::ClientProfile::*member) {
  Histogram counts;
  for (const auto& client : clients) ++counts[client.*member];
  return counts;
}

struct Pattern {
  std::string file, method;
  Histogram top_k, rank;
  size_t participants;
};
const Histogram kTwoOfEachK{{1, 2}, {2, 2}, {4, 2}, {8, 2}}, kTwoOfEachRank{{6, 2}, {8, 2}, {12, 2}, {20, 2}};
const std::vector<Pattern> kPatterns{
    {"olmoe-1b-7b", "ub-smoe", kTwoOfEachK, {{20, 8}}, 8},
    {"olmoe-1b-7b", "flora", {{8, 8}}, kTwoOfEachRank, 8},
    {"olmoe-1b-7b-ranks", "flexlora", {{8, 8}}, kTwoOfEachRank, 8},
    {"olmo-1b-ranks", "flexlora", {{0, 8}}, {{12, 2}, {16, 2}, {24, 2}, {40, 2}}, 8},
    {"olmoe-1b-7b-homogeneous-k1", "fedit", {{1, 8}}, {{20, 8}}, 8},
    {"olmoe-1b-7b-homogeneous-k2", "fed-sb", {{2, 8}}, {{20, 8}}, 8},
    {"olmoe-1b-7b-homogeneous-k4", "ffa-lora", {{4, 8}}, {{20, 8}}, 8},
    {"olmoe-1b-7b-homogeneous-k8", "ub-smoe", {{8, 8}}, {{20, 8}}, 8},
    {"olmoe-1b-7b-homogeneous-k8", "hetlora", {{8, 8}}, {{20, 8}}, 8},
    {"olmoe-1b-7b-16-uniform", "ub-smoe", {{1, 4}, {2, 4}, {4, 4}, {8, 4}}, {{20, 16}}, 16},
    {"olmoe-1b-7b-16-uniform", "hetlora", {{8, 16}}, {{6, 4}, {8, 4}, {12, 4}, {20, 4}}, 16},
    {"olmoe-1b-7b-32-uniform", "ub-smoe", {{1, 8}, {2, 8}, {4, 8}, {8, 8}}, {{20, 32}}, 16},
    {"olmoe-1b-7b-32-uniform", "flexlora", {{8, 32}}, {{6, 8}, {8, 8}, {12, 8}, {20, 8}}, 16},
    {"olmoe-1b-7b-32-long-tail", "a3smoe", {{1, 24}, {2, 4}, {4, 2}, {8, 2}}, {{20, 32}}, 32},
    {"olmoe-1b-7b-32-long-tail", "hetlora", {{8, 32}}, {{6, 24}, {8, 4}, {12, 2}, {20, 2}}, 32},
    {"olmoe-1b-7b-32-reverse-long-tail", "smoe-llb", {{1, 2}, {2, 2}, {4, 4}, {8, 24}}, {{20, 32}}, 32},
    {"olmoe-1b-7b-32-reverse-long-tail", "flexlora", {{8, 32}}, {{6, 2}, {8, 2}, {12, 4}, {20, 24}}, 32},
};

TEST(ShippedConfigs, GiveClientsTheExpertsAndRanksOfThePaper) {
  for (const auto& pattern : kPatterns) {
    const auto file = kConfigs / "commonsense" / (pattern.file + ".toml");
    const auto config = resolved(file, concat("method.name=\"", pattern.method, "\""));
    const auto clients = make_clients(config, spec_of(pattern.file.starts_with("olmoe")), {});
    EXPECT_EQ(histogram(clients, &methods::ClientProfile::top_k), pattern.top_k)
        << pattern.file << " " << pattern.method;
    EXPECT_EQ(histogram(clients, &methods::ClientProfile::rank), pattern.rank) << pattern.file << " " << pattern.method;
    for (int64_t round = 0; round < 3; ++round)
      EXPECT_EQ(draw_round(clients, config->clients.participation, 42, round).participants.size(),
                pattern.participants);
  }
}

TEST(ShippedConfigs, OfThePapersModelsAreAllChecked) {
  std::set<std::string> checked;
  for (const auto& pattern : kPatterns) checked.insert(pattern.file);
  for (const auto& file : toml_files(kConfigs / "commonsense")) {
    const auto name = file.stem().string();
    EXPECT_TRUE(checked.contains(name) || !name.starts_with("olmo")) << file << " has no row in this test";
  }
}

TEST(ShippedConfigs, OfThePaperTrainAsThePaperDoes) {
  for (const auto& pattern : kPatterns) {
    const auto config = resolved(kConfigs / "commonsense" / (pattern.file + ".toml"));
    EXPECT_EQ(config->lora.alpha, 20) << pattern.file;
    EXPECT_EQ(config->train.rounds, 10) << pattern.file;
    EXPECT_EQ(config->train.local_epochs, 0.4) << pattern.file;
    EXPECT_EQ(config->train.batch_size * config->train.accumulation, 16) << pattern.file;
    EXPECT_EQ(config->train.optimizer.lr, 2e-4) << pattern.file;
    EXPECT_EQ(config->seed, 42) << pattern.file;
    EXPECT_EQ(config->evaluate.tasks.size(), 8u) << pattern.file;
  }
}

TEST(LoraSites, HoldTheRouterOfModelsThatHaveOne) {
  LoraSection lora;
  const auto olmoe = models::load_shape(models::resolve_model_path("builtin:tiny-olmoe"));
  const auto olmo = models::load_shape(models::resolve_model_path("builtin:tiny-olmo"));
  EXPECT_EQ(lora.sites(*olmoe).size(), olmoe->all_sites().size());
  EXPECT_EQ(lora.sites(*olmo).size(), olmo->all_sites().size());
  lora.router_lora = false;
  for (const auto& [name, site] : lora.sites(*olmoe)) EXPECT_NE(site.role, lora::SiteRole::kRouter) << name;
  EXPECT_EQ(lora.sites(*olmoe).size(), olmoe->sites(lora.targets).size());
}

TEST(LoraSites, OfARouterNamedAmongTheTargetsAreRefused) {
  LoraSection lora;
  lora.targets = {"q_proj", "gate"};
  try {
    lora.sites(*models::load_shape(models::resolve_model_path("builtin:tiny-olmoe")));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kConfig);
    EXPECT_NE(std::string(error.what()).find("say lora.router_lora"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace evenkeel::fed
