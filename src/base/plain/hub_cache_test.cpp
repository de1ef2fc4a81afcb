#include "base/plain/hub_cache.h"
#include "base/plain/data_path.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>
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
    make_folders((cache() / repository / "refs" / ref).parent_path());
    write_file_atomic(cache() / repository / "refs" / ref, commit);
    return cache() / repository / "snapshots" / commit;
  }

  testing::TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
  std::vector<std::optional<std::string>> before_;
};

TEST_F(HubCache, FindsMainABranchAndACommit) {
  const std::string commit(40, 'a');
  const auto main = add("models--allenai--OLMoE-1B-7B-0924", commit, "main");
  const auto branch = add("models--allenai--OLMoE-1B-7B-0924", "3c4d", "step10");
  EXPECT_EQ(cached_snapshot(HubKind::kModel, "allenai/OLMoE-1B-7B-0924"), main);
  EXPECT_EQ(cached_snapshot(HubKind::kModel, "allenai/OLMoE-1B-7B-0924@step10"), branch);
  EXPECT_EQ(cached_snapshot(HubKind::kModel, "allenai/OLMoE-1B-7B-0924@" + commit), main);
  EXPECT_FALSE(cached_snapshot(HubKind::kModel, "allenai/OLMoE-1B-7B-0924@" + commit.substr(1)));
  EXPECT_FALSE(cached_snapshot(HubKind::kModel, "allenai/OLMoE-1B-7B-0924@step11"));
  EXPECT_FALSE(cached_snapshot(HubKind::kDataset, "allenai/OLMoE-1B-7B-0924"));
}

TEST_F(HubCache, FindsReferencesWithSlashes) {
  for (const std::string ref : {"refs/pr/1", "refs/convert/parquet", "feature/x", "a/b/c-1.0+2", "caf\xc3\xa9"}) {
    const auto snapshot = add("models--a--b", std::string(40, static_cast<char>('a' + ref.size() % 6)), ref);
    EXPECT_EQ(cached_snapshot(HubKind::kModel, "a/b@" + ref), snapshot) << ref;
  }
  EXPECT_FALSE(cached_snapshot(HubKind::kModel, "a/b@refs/pr"));
  for (const char* text : {"a/b@/x", "a/b@x/", "a/b@x//y", "a/b@x/../y", "a/b@x/.y", "a/b@x y", "a/b@x:y", "a/b@x*"})
    EXPECT_FALSE(cached_snapshot(HubKind::kModel, text)) << text;
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

TEST_F(HubCache, ExpandsTheUserAndVariables) {
  ::setenv("HOME", "/home/x/", 1);
  for (const auto& [given, expanded] :
       std::map<std::string, std::string>{{"~", "/home/x"},
                                          {"~/hub", "/home/x/hub"},
                                          {"~no-such-user/hub", "~no-such-user/hub"},
                                          {"$HOME/hub", "/home/x//hub"},
                                          {"/a/${HOME}b", "/a//home/x/b"},
                                          {"/$NO_SUCH/${NO_SUCH}$", "/$NO_SUCH/${NO_SUCH}$"},
                                          {"/${HOME", "/${HOME"}}) {
    ::setenv("HF_HUB_CACHE", given.c_str(), 1);
    EXPECT_EQ(hub_cache().string(), expanded) << given;
  }
}

TEST_F(HubCache, AnHfAddressIsTheFileInItsSnapshot) {
  const auto rows = add("datasets--org--rows", "5", "main");
  const auto pull_request = add("datasets--org--rows", "7", "refs/pr/3");
  const auto branch = add("datasets--org--rows", "8", "feature/x");
  const auto model = add("models--org--bert", "6", "main");
  EXPECT_EQ(expand_data_path("hf://datasets/org/rows/train/*.jsonl", "data.files.train"), rows / "train/*.jsonl");
  EXPECT_EQ(expand_data_path("hf://datasets/org/rows@refs/pr/3/a.jsonl", "data.path"), pull_request / "a.jsonl");
  EXPECT_EQ(expand_data_path("hf://datasets/org/rows@feature%2Fx/a@b.jsonl", "data.path"), branch / "a@b.jsonl");
  EXPECT_EQ(expand_data_path("hf://datasets/org/rows/b/", "data.path"), rows / "b");
  EXPECT_EQ(expand_data_path("hf://org/bert", "evaluate.bert_score.encoder"), model);
  EXPECT_EQ(expand_data_path("hf://models/org/bert", "evaluate.bert_score.encoder"), model);
  for (const char* absent :
       {"hf://datasets/org/other", "hf://org/rows", "hf://datasets/org", "hf://", "hf://spaces/org/rows",
        "hf://dataset/org/rows", "hf://org/bert@", "hf://org/bert//a", "hf://org/bert@%2E%2E"}) {
    try {
      expand_data_path(absent, "data.path");
      FAIL() << absent;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(concat("data.path is ", absent)), std::string::npos) << error.what();
    }
  }
}

TEST_F(HubCache, AnotherPrefixIsRefused) {
  for (const char* address : {"", "hf:/", "http://org/rows"}) EXPECT_THROW(cached_file(address, "data.path"), Error);
}

TEST_F(HubCache, ANameThatIsNotThereSaysHowToFetchIt) {
  for (const auto& [name, words] : std::map<std::string, std::string>{
           {"acme/tiny", "hf download acme/tiny"}, {"acme/tiny@v2", "hf download --revision v2 acme/tiny"}}) {
    const auto line = testing::refusal([&] { found_snapshot(HubKind::kModel, name, "--model"); });
    EXPECT_NE(line.find(concat("--model is ", name, ", which is no folder here")), std::string::npos) << line;
    EXPECT_TRUE(line.ends_with(words)) << line;
  }
  for (const auto* other : {"nowhere", "a/b/c", "./acme/tiny", "/acme/tiny", "acme/ti ny"})
    EXPECT_FALSE(found_snapshot(HubKind::kModel, other, "--model")) << other;
}

TEST_F(HubCache, APinnedAddressKeepsItsFilesWhenTheBranchMoves) {
  const std::string first(40, 'a'), second(40, 'b');
  const auto snapshot = add("models--acme--tiny", first, "main");
  make_folders(snapshot / "sub");
  const auto pinned = pinned_address("acme/tiny", "x"), inner = pinned_address("hf://acme/tiny/sub", "x");
  EXPECT_EQ(pinned, concat("hf://acme/tiny@", first));
  EXPECT_EQ(inner, concat("hf://acme/tiny@", first, "/sub"));
  add("models--acme--tiny", second, "main");
  EXPECT_EQ(cached_file(*pinned, "x"), snapshot);
  EXPECT_EQ(cached_file(*inner, "x"), snapshot / "sub");
  EXPECT_EQ(pinned_address("acme/tiny", "x"), concat("hf://acme/tiny@", second));
  EXPECT_EQ(pinned_address(*pinned, "x"), pinned);
  EXPECT_FALSE(pinned_address("a/b/c", "x"));
}

TEST_F(HubCache, TildeIsTheHomeFolderAsInAShell) {
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(expand_data_path("~", "x"), "/home/me");
  EXPECT_EQ(expand_data_path("~/runs/a", "x"), "/home/me/runs/a");
  for (const auto* same : {"./~", "a/~/b", "/~", "a~"}) EXPECT_EQ(expand_home(same, "x"), same);
  ::setenv("HOME", "/", 1);
  EXPECT_EQ(expand_home("~/a", "x"), "/a");
  ::setenv("HOME", "/home/me", 1);
  ::setenv("EVENKEEL_DATA", "~/sets", 1);
  EXPECT_EQ(expand_data_path("$EVENKEEL_DATA/a", "x"), "/home/me/sets/a");
  ::unsetenv("EVENKEEL_DATA");
  for (const auto* user : {"~root", "~root/x", "~~/x"})
    EXPECT_NE(testing::refusal([&] { expand_home(user, "--out"); }).find(concat("--out is ", user)), std::string::npos);
  for (const bool empty : {true, false}) {
    empty ? ::setenv("HOME", "", 1) : ::unsetenv("HOME");
    EXPECT_NE(testing::refusal([] { expand_home("~/x", "--out"); }).find("HOME is not set"), std::string::npos);
  }
}

}  // namespace
}  // namespace evenkeel
