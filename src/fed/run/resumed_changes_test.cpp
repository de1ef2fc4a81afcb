#include "fed/run/resumed_changes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/plain/files.h"
#include "fed/run/training_run.h"
#include "fed/store/journal.h"
#include "fed/testing.h"

namespace evenkeel::fed {
namespace {

class BegunRound : public testing::SmallRun {
 protected:
  RunRequest request(const std::vector<std::string>& settings) const {
    write_file_atomic(folder_.path() / "run.toml", testing::kSmallRun);
    RunRequest request{.file = folder_.path() / "run.toml",
                       .settings = {concat("model.path=\"", (root() / "model").string(), "\""), "method.name=fedit"},
                       .out = (folder_.path() / "run").string()};
    request.settings.insert(request.settings.end(), settings.begin(), settings.end());
    return request;
  }

  /// Begins a run whose journal of the first round has an upload, and resumes it.
  /// \return true if the resumed run has that upload
  bool keeps_upload(const std::vector<std::string>& begun, const std::vector<std::string>& resumed) const {
    remove_path(folder_.path() / "run");
    {
      const auto run = begin_run(request(begun));
      ClientRecord record;
      record.id = 1;
      RoundJournal(run.folder.checkpoint().uploads(1))
          .store(record,
                 lora::encode(lora::Payload{.extras = {{"x", at::ones({2})}}}, lora::TransportDtype::kFloat32, {}), {});
    }
    const auto run = resume_run(request(resumed));
    return RoundJournal(run.folder.checkpoint().uploads(1)).holds(1);
  }

  testing::TemporaryFolder folder_;
};

const std::string kClients = "clients.client=[{}, {}, {";

TEST_F(BegunRound, IsKeptWhereItsClientsWouldTrainTheSame) {
  const auto all = kClients + "}]";
  EXPECT_TRUE(keeps_upload({all}, {all}));
  EXPECT_TRUE(keeps_upload({all}, {all, "train.rounds=5", "clients.quorum=2", "evaluate.limit=1"}));
  EXPECT_TRUE(keeps_upload({all}, {kClients + "until=1}]"})) << "the client leaves after this round";
}

TEST_F(BegunRound, IsMadeAgainWhereItsClientsWouldTrainDifferently) {
  EXPECT_FALSE(keeps_upload({kClients + "}]"}, {kClients + "until=0}]"}));
  EXPECT_FALSE(keeps_upload({kClients + "until=0}]"}, {kClients + "}]"}));
  const std::string linear = "train.schedule.kind=linear";
  EXPECT_FALSE(keeps_upload({linear}, {linear, "train.rounds=5"}));
  const std::vector<std::string> unit = {"privacy.unit=example", "privacy.epsilon=8.0", "privacy.delta=1e-4",
                                         "privacy.clip=0.5"};
  auto longer = unit;
  longer.emplace_back("train.rounds=5");
  EXPECT_FALSE(keeps_upload(unit, longer));
}

}  // namespace
}  // namespace evenkeel::fed
