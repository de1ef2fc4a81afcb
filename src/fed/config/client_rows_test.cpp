#include "fed/config/client_rows.h"

#include <gtest/gtest.h>

#include "fed/testing.h"

namespace evenkeel::fed {
namespace {

/// Runs on files of rows, with a chat template that refuses some rows.
class ClientRows : public testing::SmallRun {
 protected:
  ClientRows() {
    write_file_atomic(folder_.path() / "own.jinja",
                      "{% if 'qqq' in messages[0].content %}{{ raise_exception('no qqq') }}{% endif %}"
                      "{% for message in messages %}{{ message.content }}{% endfor %}");
  }

  std::string path(std::string_view name) const { return (folder_.path() / name).string(); }

  /// Writes a file with a row for each question. \return its path in quotes
  std::string file(std::string_view name, std::initializer_list<std::string_view> questions) const {
    std::string text;
    for (const auto question : questions)
      text += concat(R"({"prompt": ")", question, R"(", "completion": "yes"})", '\n');
    write_file_atomic(path(name), text);
    return concat('"', path(name), '"');
  }

  /// A run of one client, or of clients with own rows. \param train  the file of rows; empty: of the clients
  Experiment run_on(std::string_view train, std::string_view clients, std::string_view more = "data.limit=0") const {
    return experiment("fedit", Purpose::kTrain, "data.task=files",
                      {concat("data.files={ strict = false, score = \"nll\", held_out = 0.0, train = [", train, "] }"),
                       "data.template=\"chat\"", concat("data.chat_template=\"", path("own.jinja"), "\""),
                       "evaluate.tasks=[\"builtin\"]", "clients.count=1", clients, more});
  }

  testing::TemporaryFolder folder_;
};

constexpr std::string_view kOneClient = "clients.budgets=[1.0]";

TEST_F(ClientRows, RowsThatCannotBeReadOrTokenisedAreCountedAndNamed) {
  const auto rows = file("rows.jsonl", {"is it good?", "is it qqq?", "", "is it old?"});
  ::testing::internal::CaptureStderr();
  const auto e = run_on(rows, kOneClient);
  const auto said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(e.fabric.shards.examples.at(0).size(), 2u);
  EXPECT_EQ(e.fabric.shards.left_out, 2);
  EXPECT_EQ(e.fabric.shards.without_target, 0);
  EXPECT_NE(said.find("[data] 1 of 3 rows cannot be tokenised and are left out; the first: "), std::string::npos)
      << said;
}

TEST_F(ClientRows, ARunWithoutAnyRowSaysWhy) {
  const auto rows = file("rows.jsonl", {"is it qqq?", "it is qqq"});
  const auto dealt = testing::refusal([&] { run_on(rows, kOneClient); });
  EXPECT_NE(dealt.find("2 of 2 rows cannot be tokenised and are left out; the first: "), std::string::npos) << dealt;
  EXPECT_NE(dealt.find("no qqq"), std::string::npos) << dealt;
  const auto client = concat("clients.client=[{ budget = 1.0, data = [", rows, "] }]");
  const auto own = testing::refusal([&] { run_on("", "clients.budgets=[]", client); });
  EXPECT_NE(own.find("client 0: 2 of 2 rows cannot be tokenised and are left out; the first: "), std::string::npos)
      << own;
}

TEST_F(ClientRows, ARunWhoseRowsAllLoseTheirAnswerSaysSo) {
  const auto rows = file("rows.jsonl", {"is it good?", "is it old?"});
  const auto said = testing::refusal([&] { run_on(rows, kOneClient, "data.cutoff=2"); });
  EXPECT_NE(said.find("2 of 2 rows have no token of an answer within data.cutoff = 2 tokens"), std::string::npos)
      << said;
}

TEST_F(ClientRows, PrivacyOfRowsAllowsEveryFileOnce) {
  const auto rows = file("rows.jsonl", {"is it good?", "is it old?"}),
             copy = file("copy.jsonl", {"is it good?", "is it old?"});
  constexpr std::string_view kPrivate =
      "privacy={ unit = \"example\", delta = 1e-4, noise_multiplier = 1.0, clip = 0.1 }";
  const auto of_copies = testing::refusal([&] { run_on(concat(rows, ", ", copy), kOneClient, kPrivate); });
  EXPECT_NE(of_copies.find("copy.jsonl is a copy of "), std::string::npos) << of_copies;
  EXPECT_NE(of_copies.find("its rows would train twice"), std::string::npos) << of_copies;
  EXPECT_EQ(testing::refusal([&] { run_on(rows, kOneClient, kPrivate); }), "no error");
  EXPECT_EQ(testing::refusal([&] { run_on(concat(rows, ", ", copy), kOneClient); }), "no error");
}

}  // namespace
}  // namespace evenkeel::fed
