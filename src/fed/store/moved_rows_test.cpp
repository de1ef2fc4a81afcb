// Checks that rows in a run folder are found after the folder was moved, and that other paths stay.
#include "fed/store/moved_rows.h"

#include <gtest/gtest.h>

#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel::fed {
namespace {

class MovedRows : public ::testing::Test {
 protected:
  MovedRows() {
    make_folders(folder_ / "rows");
    write_file_atomic(folder_ / "rows/train-1a.jsonl", "{}\n");
  }
  std::string here() const { return (folder_ / "rows/train-1a.jsonl").string(); }
  /// Returns data.files.train of a run in the folder whose config names these files.
  template <typename... Paths>
  std::vector<std::string> trained_on(const Paths&... paths) const {
    ExperimentConfig config;
    config.data.files.train = {paths...};
    find_moved_rows(config, folder_);
    return config.data.files.train;
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path() / "run";
};

TEST_F(MovedRows, AFileThatIsGoneIsFoundInTheFolder) {
  EXPECT_EQ(place_now(folder_, "/gone/rows/train-1a.jsonl"), here());
  EXPECT_EQ(trained_on("/gone/rows/train-1a.jsonl", "/a.jsonl"), (std::vector<std::string>{here(), "/a.jsonl"}));
  const Json partition = {{"files", {"/gone/rows/train-1a.jsonl"}},
                          {"client_files", {{"/gone/rows/train-1a.jsonl"}, {"/other/a.jsonl"}}},
                          {"held_out", {1, 2}}};
  EXPECT_EQ(partition_now(folder_, partition),
            (Json{{"files", {here()}}, {"client_files", {{here()}, {"/other/a.jsonl"}}}, {"held_out", {1, 2}}}));
}

TEST_F(MovedRows, RowsOfAStudyAreFoundFromItsRuns) {
  EXPECT_EQ(place_now(folder_ / "fedit/seed-7", "/gone/rows/train-1a.jsonl"), here());
  EXPECT_EQ(place_now(folder_ / "fedit", "/gone/rows/train-1a.jsonl"), "/gone/rows/train-1a.jsonl");
}

TEST_F(MovedRows, RowsOfAStudyAreFoundHoweverItsRunIsNamed) {
  const auto run = folder_ / "fedit/seed-7", before = fs::current_path();
  make_folders(run);
  EXPECT_EQ(place_now(run / "", "/gone/rows/train-1a.jsonl"), here());
  fs::current_path(run);
  EXPECT_EQ(place_now(".", "/gone/rows/train-1a.jsonl"), here());
  fs::current_path(before);
}

TEST_F(MovedRows, PathsThatAreThereOrLeadElsewhereStay) {
  for (const auto& path : {here(), std::string("/gone/rows/train-2b.jsonl"), std::string("/gone/train-1a.jsonl")}) {
    EXPECT_EQ(place_now(folder_, path), path);
    EXPECT_EQ(trained_on(path), std::vector<std::string>{path});
  }
}

}  // namespace
}  // namespace evenkeel::fed
