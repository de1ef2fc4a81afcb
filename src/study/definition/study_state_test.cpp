#include "study/definition/study_state.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/format/record.h"
#include "base/plain/files.h"
#include "base/plain/sealed.h"
#include "base/testing.h"

namespace evenkeel::study {
namespace {

StudyState two_arms() {
  StudyState state{
      .name = "demo", .reference = "fedit", .seeds = {3, 1}, .set = {"data.limit=9"}, .common = {"train.rounds=2"}};
  state.arms = {{"fedit", {"method.name=fedit"}}, {"rho-0.5", {"method.ub-smoe.rho=0.5"}}};
  state.pinned = {"threads=2"};
  for (const auto& arm : state.arms)
    for (const int64_t seed : state.seeds)
      state.runs.push_back({arm.name, seed, run_folder_name(arm.name, seed), RunState::kPlanned, {}, {}, "abc"});
  return state;
}

/// Returns the error of reading a state that was changed before it was sealed.
std::string complaint(const std::function<void(OrderedJson&)>& change) {
  const testing::TemporaryFolder folder;
  auto json = record::write(two_arms());
  change(json);
  write_sealed(folder.path() / kStateFile, json);
  try {
    read_state(folder.path());
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

::testing::AssertionResult says(std::string_view words, const std::string& line) {
  if (line.find(words) != line.npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << line;
}

TEST(StudyState, IsReadAsItWasWritten) {
  const testing::TemporaryFolder folder;
  auto state = two_arms();
  state.find("rho-0.5", 1)->state = RunState::kFailed;
  state.find("rho-0.5", 1)->error = "[numeric] loss is nan";
  state.find("fedit", 3)->state = RunState::kDone;
  state.find("fedit", 3)->seconds = 12.25;
  write_state(folder.path(), state);
  const auto again = read_state(folder.path());
  EXPECT_EQ(record::write(again).dump(), record::write(state).dump());
  EXPECT_EQ(again.count(RunState::kPlanned), 2);
  EXPECT_EQ(again.find("rho-0.5", 1)->label(), "rho-0.5:1");
  EXPECT_EQ(again.find("rho-0.5", 2), nullptr);
}

TEST(StudyState, IsRefusedWhereAFieldIsNotWhatItShouldBe) {
  EXPECT_EQ(complaint([](auto&) {}), "nothing");
  EXPECT_TRUE(says("version is 2, this program reads 1", complaint([](auto& json) { json["version"] = 2; })));
  EXPECT_TRUE(says("which is no arm", complaint([](auto& json) { json["reference"] = "a3smoe"; })));
  EXPECT_TRUE(says("none of its names", complaint([](auto& json) { json["endpoint"] = "loss"; })));
  EXPECT_TRUE(says("one twice", complaint([](auto& json) { json["seeds"] = {1, 1}; })));
  EXPECT_TRUE(says("../else", complaint([](auto& json) { json["arms"][1]["name"] = "../else"; })));
  EXPECT_TRUE(says("expected rho-0.5/seed-3", complaint([](auto& json) { json["runs"][2]["folder"] = "../../etc"; })));
  EXPECT_TRUE(says("runs lacks rho-0.5/seed-1", complaint([](auto& json) { json["runs"].erase(3); })));
  EXPECT_TRUE(says("twice", complaint([](auto& json) {
                     json["runs"][0]["seed"] = 1;
                     json["runs"][0]["folder"] = "fedit/seed-1";
                   })));
  EXPECT_TRUE(says("runs[0].state", complaint([](auto& json) { json["runs"][0]["state"] = 7; })));
}

TEST(StudyState, IsRefusedWhereABitHasChanged) {
  const testing::TemporaryFolder folder;
  write_state(folder.path(), two_arms());
  auto text = read_file(folder.path() / kStateFile);
  text[text.find("planned")] = 'P';
  write_file_atomic(folder.path() / kStateFile, text);
  EXPECT_THROW(read_state(folder.path()), Error);
  EXPECT_THROW(read_state(folder.path() / "nowhere"), Error);
}

TEST(StudyState, NamesOfArmsAreNamesOfFolders) {
  for (const auto* name : {"fedit", "rho-0.3", "K_8", "2"}) EXPECT_TRUE(is_arm_name(name)) << name;
  for (const auto* name : {"", ".", "..", "a/b", "study.json", "a:1", "-x", "x.", "a b", "\xc3\xa9"})
    EXPECT_FALSE(is_arm_name(name)) << name;
  EXPECT_FALSE(is_arm_name(std::string(81, 'a')));
}

}  // namespace
}  // namespace evenkeel::study
