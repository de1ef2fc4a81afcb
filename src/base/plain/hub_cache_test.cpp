#include "base/plain/hub_cache.h"
#include "base/plain/data_path.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

/// Sets the variables that name the cache, and restores them.
class HubCache : public ::testing::Test {
 protected:
  static constexpr std::array kVariables{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"};
  void SetUp() override {
    for (const char* name : kVariables) {
      const char* value = std::getenv(name);
      before_.push_back(value ? std::optional<std::string>(value) : std::nullopt);
      ::unsetenv(name);
    }
    ::setenv("HF_HUB_CACHE", cache().c_str(), 1);
  }
  void TearDown() override {
    for (size_t i = 0; i < kVariables.size(); ++i)
      before_[i] ? ::setenv(kVariables[i], before_[i]->c_str(), 1) : ::unsetenv(kVariables[i]);
  }
  fs::path cache() const { return folder_ / "hub"; }
  fs::path add(const std::string& repository, const std::string& commit, const std::string& ref) const {
    make_folders(cache() / repository / "snapshots" / commit);
    make_folders(cache() / repository / "refs");
    write_file_atomic(cache() / repository / "refs" / ref, commit);
    return cache() / repository / "snapshots" / commit;
  }

  testing::TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
  std::vector<std::optional<std::string>> before_;
};

TEST_F(HubCache, FindsMainABranchAndACommit) {
  const auto main = add("models--allenai--OLMoE-1B-7B-0924", "1a2b", "main");
  const auto branch = add("models--allenai--OLMoE-1B-7B-0924", "3c4d", "step10");
  EXPECT_EQ(cached_snapshot(HubKind::kModel, "allenai/OLMoE-1B-7B-0924"), main);
  EXPECT_EQ(cached_snapshot(HubKind::kModel, "allenai/OLMoE-1B-7B-0924@step10"), branch);
  EXPECT_EQ(cached_snapshot(HubKind::kModel, "allenai/OLMoE-1B-7B-0924@1a2b"), main);
  EXPECT_FALSE(cached_snapshot(HubKind::kModel, "allenai/OLMoE-1B-7B-0924@step11"));
  EXPECT_FALSE(cached_snapshot(HubKind::kDataset, "allenai/OLMoE-1B-7B-0924"));
}

TEST_F(HubCache, DataSetsAreKeptApartFromModels) {
  const auto rows = add("datasets--tatsu-lab--alpaca", "77", "main");
  EXPECT_EQ(cached_snapshot(HubKind::kDataset, "tatsu-lab/alpaca"), rows);
  EXPECT_FALSE(cached_snapshot(HubKind::kModel, "tatsu-lab/alpaca"));
}

TEST_F(HubCache, ARefThatNamesNoSnapshotIsNotFound) {
  add("models--a--b", "11", "main");
  write_file_atomic(cache() / "models--a--b/refs/main", "../../../etc");
  EXPECT_FALSE(cached_snapshot(HubKind::kModel, "a/b"));
  write_file_atomic(cache() / "models--a--b/refs/main", "22");
  EXPECT_FALSE(cached_snapshot(HubKind::kModel, "a/b"));
}

TEST_F(HubCache, AnythingElseIsNoName) {
  add("models--a--b", "11", "main");
  ASSERT_TRUE(cached_snapshot(HubKind::kModel, "a/b"));
  for (const char* text : {"a", "a/b/c", "/a/b", "a/", "../b", "a/..", "-a/b", "a/b@", "a b/c", "a/b@../x", "a--b", ""})
    EXPECT_FALSE(cached_snapshot(HubKind::kModel, text)) << text;
}

TEST_F(HubCache, FollowsTheVariablesOfHuggingfaceHub) {
  EXPECT_EQ(hub_cache(), cache());
  ::unsetenv("HF_HUB_CACHE");
  ::setenv("HOME", "/home/x", 1);
  EXPECT_EQ(hub_cache(), "/home/x/.cache/huggingface/hub");
  ::setenv("XDG_CACHE_HOME", "/c", 1);
  EXPECT_EQ(hub_cache(), "/c/huggingface/hub");
  ::setenv("HF_HOME", "/hf", 1);
  EXPECT_EQ(hub_cache(), "/hf/hub");
  ::setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
  EXPECT_EQ(hub_cache(), "/old");
}

TEST_F(HubCache, AnHfAddressIsTheFileInItsSnapshot) {
  const auto rows = add("datasets--org--rows", "5", "main");
  const auto model = add("models--org--bert", "6", "main");
  EXPECT_EQ(expand_data_path("hf://datasets/org/rows/train/*.jsonl", "data.files.train"), rows / "train/*.jsonl");
  EXPECT_EQ(expand_data_path("hf://datasets/org/rows@5", "data.path"), rows);
  EXPECT_EQ(expand_data_path("hf://org/bert", "evaluate.bert_score.encoder"), model);
  for (const char* absent : {"hf://datasets/org/other", "hf://org/rows", "hf://datasets/org", "hf://"}) {
    try {
      expand_data_path(absent, "data.path");
      FAIL() << absent;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(concat("data.path is ", absent)), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace evenkeel
