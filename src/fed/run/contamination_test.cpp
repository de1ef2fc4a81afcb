#include "fed/run/contamination.h"

#include <gtest/gtest.h>

#include "fed/testing.h"

namespace evenkeel::fed {
namespace {

class Contamination : public testing::SmallRun {
 protected:
  Contamination() {
    std::string rows;
    for (int i = 0; i < 12; ++i)
      rows += concat(R"({"prompt": "Is )", i, R"( even?", "completion": ")", i % 2 == 0 ? "yes" : "no",
                     R"(", "site": "north"})", '\n');
    write_file_atomic(folder_.path() / "rows.jsonl", rows);
  }

  /// Returns the number of warnings of a run with two sets over one file, each of which holds out a part of its rows.
  /// \param x, y  further keys of the sets, as inline TOML
  int64_t warnings(std::string_view x, std::string_view y) const {
    const auto set = [&](std::string_view keys) {
      return concat("{ train = ['", (folder_.path() / "rows.jsonl").string(), "'], held_out = 0.25", keys, " }");
    };
    const auto sets = concat("data.files={ x = ", set(x), ", y = ", set(y), " }");
    const auto e =
        experiment("fedit", Purpose::kDryRun, sets, {"data.task=files", "data.limit=0", "data.partition.kind=iid"});
    ::testing::internal::CaptureStderr();
    warn_of_contamination(e);
    const auto said = ::testing::internal::GetCapturedStderr();
    int64_t count = 0;
    for (size_t at = said.find("is tested with it"); at != said.npos; at = said.find("is tested with it", at + 1))
      ++count;
    return count;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Contamination, SetsOverOneFileHoldOutTheSameRowsOnlyIfTheyReadTheSameRows) {
  EXPECT_EQ(warnings("", ""), 0);
  EXPECT_EQ(warnings(", score = 'nll'", ", score = 'choice', options = ['yes', 'no']"), 0) << "strict sets read all";
  EXPECT_EQ(warnings("", ", ignore = ['site']"), 2);
  const auto lenient = [&](const std::string& x, const std::string& y) {
    return warnings(", strict = false" + x, ", strict = false" + y);
  };
  EXPECT_EQ(lenient("", ", score = 'exact'"), 0) << "f1 and exact read the same";
  EXPECT_EQ(lenient("", ", score = 'nll'"), 2);
  EXPECT_EQ(lenient("", ", label = 'site'"), 2);
  EXPECT_EQ(lenient(", score = 'choice', options = ['yes', 'no']", ", score = 'choice', options = ['yes', 'no', '?']"),
            2);
  EXPECT_EQ(warnings(", strict = false, score = 'nll'", ""), 2);
  EXPECT_EQ(warnings(", strict = false", ""), 0);
  EXPECT_EQ(warnings("", ", split_seed = 7"), 2);
}

}  // namespace
}  // namespace evenkeel::fed
