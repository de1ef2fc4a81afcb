#include "study/definition/study_plan.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/plain/files.h"
#include "base/testing.h"
#include "study/definition/run_claims.h"
#include "study/running/run_study.h"
#include "study/running/study_progress.h"

namespace evenkeel::study {
namespace {

/// A study file beside its base config.
struct Written {
  testing::TemporaryFolder folder{};
  StudyRequest request{};

  explicit Written(const std::string& arms, const std::string& study = "seeds = [4, 2]",
                   const std::string& base = "threads = 3\n[model]\ncompute_dtype = \"float32\"\n") {
    write_file_atomic(folder.path() / "base.toml", base);
    write_file_atomic(folder.path() / "two.toml", concat("[study]\nbase = \"base.toml\"\n", study, "\n", arms));
    request.file = StudyFile::load(folder.path() / "two.toml");
  }
};

const std::string kTwoArms =
    "[[study.arm]]\nname = \"plain\"\nset = [\"method.name=fedit\"]\n"
    "[[study.arm]]\nname = \"mean\"\nset = [\"method.name=a3smoe\", \"train.local_epochs=0.5\"]\n";

std::string complaint_about(const std::string& arms, const std::string& study = "seeds = [1]") {
  try {
    check_arms(Written(arms, study).request);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

std::vector<PlannedRun> runs_of(const StudyRequest& request, const std::vector<std::string>& pinned) {
  return plan_runs(plan_arms(request, pinned), request.file.study.seeds);
}

Study planned_study(const StudyRequest& request, const fs::path& folder, const std::vector<std::string>& pinned) {
  auto arms = plan_arms(request, pinned);
  auto runs = plan_runs(arms, request.file.study.seeds);
  auto state = new_state(request, pinned, arms, runs);
  return {folder, std::move(state), std::move(arms), std::move(runs)};
}

/// Returns the study in the folder "out" beside its file.
Study planned_study(const Written& two, const std::vector<std::string>& pinned) {
  return planned_study(two.request, two.folder.path() / "out", pinned);
}

::testing::AssertionResult holds(const std::string& line, std::string_view words) {
  if (line.find(words) != line.npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << line;
}

TEST(StudyFile, HasDefaultsAndIsWrittenAsItIsRead) {
  const Written two(kTwoArms);
  EXPECT_EQ(two.request.file.study.name, "two");
  EXPECT_EQ(two.request.file.study.reference, "plain");
  EXPECT_EQ(config::name_of(two.request.file.study.endpoint), "log_likelihood");
  EXPECT_EQ(two.request.file.base, two.folder.path() / "base.toml");
  const auto text = two.request.file.text("else.toml");
  write_file_atomic(two.folder.path() / "again.toml", text);
  const auto again = StudyFile::load(two.folder.path() / "again.toml");
  EXPECT_EQ(again.text("else.toml"), text);
  EXPECT_EQ(again.study.name, "two");
  EXPECT_EQ(again.arms(), two.request.file.arms());
}

TEST(StudyPlan, RecordsScoresOfSingleRowsUnlessTheStudyDecides) {
  const auto common_of = [](StudyRequest request) { return with_items(std::move(request)).common; };
  Written two(kTwoArms);
  two.request.common = {"train.rounds=5"};
  EXPECT_EQ(common_of(two.request), (std::vector<std::string>{"evaluate.items=true", "train.rounds=5"}));
  const auto planned = runs_of(with_items(two.request), pinned_settings(two.request, 1));
  EXPECT_TRUE(planned[0].config->evaluate.items);
  for (const auto* decided : {"evaluate.items=false", "evaluate . items = false", "evaluate={ items = false }"}) {
    two.request.common = {decided};
    EXPECT_EQ(common_of(two.request), std::vector<std::string>{decided});
  }
  EXPECT_TRUE(common_of(Written(kTwoArms, "seeds = [1]", "[evaluate]\nitems = false\n").request).empty());
  EXPECT_TRUE(common_of(Written("[[study.arm]]\nname = \"x\"\nset = [\"evaluate.items=false\"]\n").request).empty());
}

TEST(StudyPlan, AppliesBaseCommonArmPinnedAndSeedInThatOrder) {
  Written two(kTwoArms);
  two.request.common = {"train.rounds=5", "train.local_epochs=0.25"};
  const auto pinned = pinned_settings(two.request, 2);
  EXPECT_EQ(pinned, (std::vector<std::string>{"threads=3", "model.device=\"cpu\"", "model.engine=\"kernels\"",
                                              "model.graphs=\"off\"", "model.cuda_kernels=\"none\"",
                                              "model.compute_dtype=\"float32\""}));
  const auto runs = runs_of(two.request, pinned);
  ASSERT_EQ(runs.size(), 4);
  EXPECT_EQ(concat(runs[0].arm, runs[0].seed, runs[1].arm, runs[1].seed, runs[2].arm, runs[2].seed),
            "plain4mean4plain2");
  EXPECT_EQ(runs[0].config->train.local_epochs, 0.25);
  EXPECT_EQ(runs[1].config->train.local_epochs, 0.5);
  EXPECT_EQ(runs[3].config->train.rounds, 5);
  EXPECT_EQ(runs[3].config->seed, 2);
  EXPECT_EQ(runs[3].config->method.name, "a3smoe");
  EXPECT_EQ(runs[3].config->threads, 3);
}

TEST(StudyPlan, SettingsOfTheFileAreOfAllArmsAndThoseOfTheCommandLineAndOfArmsReplaceThem) {
  const std::string all = "seeds = [1]\nset = [\"train={ rounds = 7, batch_size = 3 }\", \"clients.count=3\", ";
  Written two(kTwoArms, all + "\"train.local_epochs=0.75\", \"evaluate.items=false\", \"threads=2\"]");
  two.request.common = {"clients.count=5"};
  const auto pinned = pinned_settings(two.request, 1);
  EXPECT_EQ(pinned.front(), "threads=2") << "the file's settings are pinned as the base config's";
  EXPECT_EQ(with_items(two.request).common, std::vector<std::string>{"clients.count=5"}) << "the file decides items";
  const auto runs = runs_of(two.request, pinned);
  EXPECT_EQ(runs[0].config->train.rounds, 7);
  EXPECT_EQ(runs[1].config->train.batch_size, 3);
  EXPECT_EQ(runs[0].config->clients.count, 5) << "--set comes after the file";
  EXPECT_EQ(runs[0].config->train.local_epochs, 0.75);
  EXPECT_EQ(runs[1].config->train.local_epochs, 0.5) << "an arm comes last";
  EXPECT_EQ(planned_study(two, pinned).state.set, two.request.file.study.set);
}

TEST(StudyPlan, SettingsOfTheFileAreCheckedAsThoseOfTheCommandLine) {
  const auto with = [](const std::string& set) {
    return complaint_about(kTwoArms, "seeds = [1]\nset = [\"" + set + "\"]");
  };
  EXPECT_EQ(with("data.limit=20"), "nothing") << "what all arms share needs no [study] free";
  EXPECT_TRUE(holds(with("seed=3"), "study.set sets seed=3"));
  EXPECT_TRUE(holds(with("train.round=3"), "train.round"));
  EXPECT_TRUE(holds(with("train.rounds"), "train.rounds"));
}

TEST(StudyPlan, ThreadsThatAreLeftOpenAreTheCoresByJobs) {
  const Written open(kTwoArms, "seeds = [1]", "[model]\ncompute_dtype = \"float32\"\n");
  const auto threads = [&](int64_t jobs) { return pinned_settings(open.request, jobs).front(); };
  EXPECT_EQ(threads(1), concat("threads=", at::intraop_default_num_threads()));
  EXPECT_EQ(threads(1000), "threads=1");
}

TEST(StudyPlan, TheInt8CopyOfABaseIsOneForAllRunsAlsoAfterTheStudyWasMoved) {
  const Written int8(kTwoArms, "seeds = [1]", "[model]\nbase_format = \"int8\"\ncompute_dtype = \"float32\"\n");
  auto study = planned_study(int8, pinned_settings(int8.request, 1));
  for (const auto& arm : study.arms) EXPECT_EQ(arm.resolved.model.base_cache, "") << "no folder of today is stored";
  create_study(study, int8.request);
  make_folders(int8.folder.path() / "elsewhere");
  fs::rename(study.folder, int8.folder.path() / "elsewhere/moved");
  study = open_study(int8.folder.path() / "elsewhere/moved");
  for (const auto& run : study.state.runs)
    EXPECT_EQ(study.runs.front().config->model.storage(study.folder / run.folder).cache,
              int8.folder.path() / "elsewhere/.evenkeel-cache");
}

TEST(StudyPlan, ArmsDifferInMethodAndTrainingAlone) {
  const auto arm = [](const std::string& set) {
    return kTwoArms + "[[study.arm]]\nname = \"x\"\nset = [\"" + set + "\"]\n";
  };
  EXPECT_EQ(complaint_about(kTwoArms), "nothing");
  for (const auto* set : {"train.optimizer.lr=0.1", "method.name=ub-smoe", "name=x", "train.batch_size=2"})
    EXPECT_EQ(complaint_about(arm(set)), "nothing");
  for (const auto* set : {"data.limit=20", "clients.count=3", "clients.budgets=[1.0]", "lora.rank=4", "lora.init=x",
                          "evaluate.limit=2", "train.rounds=7", "train.stop.patience=2",
                          "train.transport_dtype=bfloat16", "model.dtype=float32", "evaluate.rank_eval_modes=[a]"})
    EXPECT_TRUE(holds(complaint_about(arm(set)), concat("arm x: ", std::string_view(set).substr(0, 5)))) << set;
  EXPECT_TRUE(holds(complaint_about(arm("seed=3")), "arm x sets seed=3"));
  EXPECT_TRUE(holds(complaint_about(arm("threads=2")), "arm x: threads is 2, in arm plain 3"));
}

TEST(StudyPlan, FreeKeysMayDifferUnlessTheyArePinned) {
  const std::string arm = kTwoArms + "[[study.arm]]\nname = \"x\"\nset = [\"data.limit=20\", \"clients.count=3\"]\n";
  const auto free = [&](const std::string& keys) {
    return complaint_about(arm, concat("seeds = [1]\nfree = [", keys, "]"));
  };
  EXPECT_EQ(free("\"data.limit\", \"clients\""), "nothing");
  EXPECT_EQ(free("\"data\", \"clients.count\""), "nothing");
  EXPECT_TRUE(holds(free("\"data.lim\""), "study.free holds \"data.lim\""));
  EXPECT_TRUE(holds(free("\"data\""), "clients.count is 3"));
  EXPECT_TRUE(holds(free("\"model.compute_dtype\""), "allowed: anything but seed"));
  EXPECT_TRUE(holds(free("\"data.limit.x\""), "no key or section"));
}

TEST(StudyPlan, IsMadeAgainFromTheStateOfTheStudy) {
  Written two(kTwoArms, "seeds = [4, 2]\nendpoint = \"f1\"\nfree = [\"data.limit\"]\nset = [\"data.cutoff=99\"]");
  two.request.common = {"train.rounds=5"};
  const auto pinned = pinned_settings(two.request, 1);
  const auto arms = plan_arms(two.request, pinned);
  const auto runs = plan_runs(arms, two.request.file.study.seeds);
  const auto state = new_state(two.request, pinned, arms, runs);
  EXPECT_EQ(state.runs[1].folder, "mean/seed-4");
  EXPECT_EQ(state.base_sha256, sha256_file(two.folder.path() / "base.toml"));
  const auto again = request_of(state, two.folder.path() / "base.toml");
  EXPECT_EQ(again.file.text("base.toml"), two.request.file.text("base.toml"));
  const auto runs_again = runs_of(again, state.pinned);
  for (size_t i = 0; i < runs.size(); ++i) EXPECT_EQ(config_digest(runs_again[i].config), state.runs[i].config_sha256);
}

/// Returns the files that creating a study writes, in the order of their writing.
std::vector<fs::path> files_in_order(const Study& study) {
  std::vector<fs::path> files{kBaseFile};
  for (const auto& arm : study.arms) files.push_back(fs::path(arm.name) / kArmFile);
  files.insert(files.end(), {kStateFile, kStudyFile});
  return files;
}

TEST(StudyFolder, CanBeCreatedAgainAfterAKillAtEveryInstant) {
  const Written two(kTwoArms);
  const auto pinned = pinned_settings(two.request, 1);
  auto study = planned_study(two, pinned);
  create_study(study, two.request);
  const auto whole = study.folder;
  const auto files = files_in_order(study);
  for (const auto& entry : fs::recursive_directory_iterator(whole))
    EXPECT_TRUE(entry.is_directory() ||
                std::find(files.begin(), files.end(), entry.path().lexically_relative(whole)) != files.end())
        << entry.path();
  for (size_t written = 0; written <= 4; ++written)
    for (const char* lock : {"", ".lock"})
      for (const bool begun : {false, true}) {
        study.folder = two.folder.path() / concat("killed-", written, begun, lock);
        make_folders(study.folder);
        if (*lock != '\0') write_file_atomic(study.folder / lock, "process 1");
        for (size_t i = 0; i < written; ++i) {
          make_folders((study.folder / files[i]).parent_path());
          fs::copy_file(whole / files[i], study.folder / files[i]);
        }
        if (begun && written > 0) make_folders((study.folder / files[written]).parent_path());
        if (begun) write_file_atomic(study.folder / (files[written].string() + ".part-7-1"), "half");
        if (written < 4) check_new(study.folder);  // study.json is not there yet
        create_study(study, two.request);
        EXPECT_EQ(open_study(study.folder).runs.size(), 4u) << study.folder;
      }
}

TEST(StudyFolder, OtherFilesAreNoLeftovers) {
  const Written two(kTwoArms);
  const auto refused = [&](std::initializer_list<const char*> files) {
    const auto folder = two.folder.path() / "mine";
    remove_path(folder);
    for (const fs::path file : files) {
      make_folders((folder / file).parent_path());
      write_file_atomic(folder / file, "mine");
    }
    return testing::refusal([&] { check_new(folder); });
  };
  for (const auto* file : {"notes.txt", "study.toml", "a/notes.txt", "plain/arm.toml"})
    EXPECT_TRUE(holds(refused({file}), "not empty")) << file;
  EXPECT_TRUE(holds(refused({"base.toml", "plain/arm.toml", "plain/notes.txt"}), "not empty"));
  EXPECT_TRUE(holds(refused({"base.toml", "plain/seed-1/x"}), "holds runs of a study"));
}

TEST(StudyFolder, AnArmKeepsThePathsThatItWasPlannedWith) {
  const testing::TemporaryFolder rows;
  write_file_atomic(rows.path() / "a.jsonl", "{}");
  const auto pattern = concat("[data]\ntask = \"files\"\n[data.files]\ntrain = [\"", rows.path().string(),
                              "/*.jsonl\"]\n[data.partition]\nkind = \"iid\"\n");
  const Written two(kTwoArms, "seeds = [4, 2]", "threads = 3\n[model]\ncompute_dtype = \"float32\"\n" + pattern);
  const auto pinned = pinned_settings(two.request, 1);
  const auto made = planned_study(two, pinned);
  create_study(made, two.request);
  write_file_atomic(rows.path() / "b.jsonl", "{}");  // does not join the study
  const std::vector<std::string> files{rows.path() / "a.jsonl"};
  EXPECT_EQ(open_study(made.folder).runs[0].config->data.files.train, files);
  auto more = two.request;
  more.file.study.seeds.push_back(7);
  more.file.study.arm.push_back({"third", {"method.name=ub-smoe"}});
  const auto study = extended(more, open_study(made.folder));
  ASSERT_EQ(study.runs.size(), 9u);
  for (const auto& run : study.runs) EXPECT_EQ(run.config->data.files.train, files) << run.arm;
}

/// Returns the request with more arms, each with a config of its own, and more seeds.
StudyRequest with_more(StudyRequest request, const std::vector<std::string>& arms,
                       const std::vector<int64_t>& seeds = {}) {
  for (const auto& arm : arms) request.file.study.arm.push_back({arm, {"method.name=fedit", "name=" + arm}});
  for (const int64_t seed : seeds) request.file.study.seeds.push_back(seed);
  return request;
}

/// Expects that the runs are planned as the state has them, with the same places.
void expect_whole(const Study& study) {
  ASSERT_EQ(study.runs.size(), study.state.runs.size());
  for (size_t i = 0; i < study.runs.size(); ++i) {
    const auto& [arm, seed, config] = study.runs[i];
    EXPECT_EQ(concat(arm, ":", seed), study.state.runs[i].label());
    EXPECT_EQ(config_digest(config), study.state.runs[i].config_sha256) << arm << ":" << seed;
  }
}

/// Expects that both have the same runs at the same places, as far as the first has them.
void expect_same_places(const Study& study, const Study& other) {
  ASSERT_LE(study.state.runs.size(), other.state.runs.size());
  for (size_t i = 0; i < study.state.runs.size(); ++i)
    EXPECT_EQ(study.state.runs[i].label(), other.state.runs[i].label()) << i;
}

TEST(StudyFolder, ProcessesThatExtendItAtOnceKeepWhatTheOthersHaveAdded) {
  const Written two(kTwoArms);
  auto made = planned_study(two, pinned_settings(two.request, 1));
  const std::vector<StudyRequest> requests{with_more(two.request, {"c"}), with_more(two.request, {"d", "c"}, {7}),
                                           with_more(two.request, {"e"}, {9, 7})};
  std::vector<size_t> order{0, 1, 2};
  do {
    made.folder = two.folder.path() / concat("saved-", join(order, ""));
    create_study(made, two.request);
    std::vector<Study> studies;
    for (const auto& request : requests) studies.push_back(extended(request, open_study(made.folder)));
    for (const size_t i : order) {
      update_state(made.folder, [](StudyState& state) { state.runs[1].state = RunState::kDone; });
      studies[i] = save_extension(requests[i], studies[i]);
    }
    const auto now = open_study(made.folder);
    studies.push_back(now);
    for (const auto& study : studies) {
      expect_whole(study);
      expect_same_places(study, now);
      EXPECT_EQ(study.state.runs[1].state, RunState::kDone);
    }
    EXPECT_EQ(now.state.arms.size(), 5u);
    EXPECT_EQ(now.runs.size(), 5u * 4u) << "every arm with the seeds 4, 2, 7 and 9";
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(StudyFolder, AnArmThatAnotherProcessHasAddedWithAnotherConfigIsRefused) {
  const Written two(kTwoArms);
  const auto made = planned_study(two, pinned_settings(two.request, 1));
  create_study(made, two.request);
  const auto first = with_more(two.request, {"c"});
  auto second = first;
  second.file.study.arm.back().set.push_back("train.local_epochs=0.25");
  const auto late = extended(second, open_study(made.folder));
  save_extension(first, extended(first, open_study(made.folder)));
  EXPECT_TRUE(holds(testing::refusal([&] { save_extension(second, late); }), "whose c:4 has another config"));
  EXPECT_EQ(open_study(made.folder).runs.size(), 6u) << "arm.toml of the first is kept";
}

TEST(StudyFolder, ArmsOfSeveralProcessesAreNoMoreThanAFileMayHave) {
  const Written two(kTwoArms);
  const auto made = planned_study(two, pinned_settings(two.request, 1));
  create_study(made, two.request);
  const auto first = with_more(two.request, {"c"}), second = with_more(two.request, {"C"});
  const auto late = extended(second, open_study(made.folder));
  save_extension(first, extended(first, open_study(made.folder)));
  EXPECT_TRUE(holds(testing::refusal([&] { save_extension(second, late); }), "\"c\" twice"));
}

TEST(StudyFolder, AProcessKeepsItsRunsWhereAnotherHasGivenThemOtherPlaces) {
  const Written two(kTwoArms);
  const auto pinned = pinned_settings(two.request, 1);
  auto other = two.request;
  std::reverse(other.file.study.arm.begin(), other.file.study.arm.end());
  const auto folder = two.folder.path() / "out";
  StudyTask task{.request = two.request,
                 .study = planned_study(two, pinned),
                 .mine = {1, 2},
                 .is_new = true,
                 .slots = {"cpu", 1, 0}};
  create_study(planned_study(other, folder, pinned), other);
  save_study(task);
  EXPECT_EQ(task.labels(), (std::vector<std::string>{"mean:4", "plain:2"})) << "of the study that was created first";
  task = {.request = with_more(two.request, {"c"}), .study = {}, .mine = {4}, .is_new = false, .slots = {"cpu", 1, 0}};
  task.study = extended(task.request, open_study(folder));
  other = with_more(two.request, {"d", "c"});
  save_extension(other, extended(other, open_study(folder)));
  save_study(task);
  EXPECT_EQ(task.labels(), std::vector<std::string>{"c:4"});
  expect_whole(task.study);
}

TEST(StudyPlan, EveryShippedStudyHasArmsThatCanBeCompared) {
  size_t studies = 0;
  for (const auto* folder :
       {"configs/paper", "configs/paper/native", "configs/paper/small", "configs/paper/small/native"})
    for (const auto& file : entries_of(shipped_folder() / folder)) {
      if (!is_file(file) || read_file(file).find("[study]") == std::string::npos) continue;
      ++studies;
      EXPECT_NO_THROW(check_arms({.file = StudyFile::load(file)})) << file;
    }
  EXPECT_GE(studies, 44u);
}

TEST(RunClaims, ARunIsClaimedOnceAndFreeWhenItsProcessEnds) {
  const testing::TemporaryFolder folder;
  const std::vector<size_t> first{0, 2}, second{2, 3}, third{1, 3};
  const std::vector<std::string> labels{"a:1", "b:1"};
  {
    const RunClaims claims(folder.path(), first, labels);
    EXPECT_THROW(RunClaims(folder.path(), second, labels), Error);
    EXPECT_NO_THROW(RunClaims(folder.path(), third, labels));
  }
  EXPECT_NO_THROW(RunClaims(folder.path(), second, labels));
}

TEST(Shard, IsOneOfN) {
  EXPECT_EQ(Shard::read("2/4").index, 2);
  EXPECT_EQ(Shard::read("2/4").count, 4);
  for (const auto* text : {"", "2", "0/4", "5/4", "1/0", "-1/2", "1/2/3", "1/", "/2", "1/99999999999999999999", "a/b"})
    EXPECT_THROW(Shard::read(text), Error) << text;
}

TEST(StudyProgress, TheTimeLeftFollowsFromFinishedRuns) {
  const Written two(kTwoArms);
  const auto pinned = pinned_settings(two.request, 1);
  const auto study = planned_study(two, pinned);
  const std::vector<size_t> mine{0, 1, 2, 3};
  StudyProgress progress(study, mine, 1);
  EXPECT_FALSE(progress.seconds_left());
  EXPECT_EQ(progress.text(), "0 of 4 runs done");
  progress.begin(0);
  progress.end(0, 100);
  EXPECT_DOUBLE_EQ(*progress.seconds_left(), 300);  // the other arm like this one
  progress.begin(1);
  progress.end(1, 10);
  EXPECT_DOUBLE_EQ(*progress.seconds_left(), 110);
  EXPECT_EQ(progress.text(), "2 of 4 runs done, about 1:50 min left");
  StudyProgress side_by_side(study, mine, 4);
  side_by_side.begin(0);
  side_by_side.end(0, 100);
  EXPECT_DOUBLE_EQ(*side_by_side.seconds_left(), 100);  // no less than the longest run
}

}  // namespace
}  // namespace evenkeel::study
