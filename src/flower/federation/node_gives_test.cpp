// What a node gives: requests of a server that asks for more than was agreed on are refused, each with its reason.
#include <algorithm>
#include <functional>
#include <stdexcept>

#include "base/system/interrupt.h"
#include "fed/config/config_paths.h"
#include "flower/federation/node_testing.h"
#include "flower/federation/offered_config.h"
#include "flower/node/node_options.h"

namespace evenkeel::flower {
namespace {

TEST_F(NodeInRun, AnswersWhatTheRunAsks) {
  join({"evaluate.before=true"});
  EXPECT_EQ(acceptance().test_rows, 14);
  EXPECT_EQ(acceptance().no_scores, "");
  EXPECT_FALSE(acceptance().items);
  for (const double budget : {0.25, 1.0}) EXPECT_EQ(asked(scoring(0, budget)), "");
  EXPECT_EQ(asked(training()), "");
  EXPECT_EQ(asked(training(1)), "");
  EXPECT_EQ(asked(scoring(2)), "");
  EXPECT_EQ(answered()["scored"]["score"]["rows"], 14);
}

TEST_F(NodeInRun, GivesNoScoreOfSomeOfItsRows) {
  join();
  const auto task = scoring(2);
  auto header = Json::parse(fed::header_of(task));
  for (const Json& some :
       {Json::array({3}), Json::array({3, 3, 3}), Json::array({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})}) {
    header["score"]["rows"] = some;
    EXPECT_NE(said_to({run_, kTaskEnvelope, header.dump(), task.payload.bytes})
                  .find("a request with the field score.rows, which this program does not know"),
              std::string::npos);
  }
}

TEST_F(NodeInRun, RefusesRequestsWithUnknownFields) {
  join();
  const auto task = training();
  for (const auto* place : {"", "/client", "/train"}) {
    auto header = Json::parse(fed::header_of(task));
    header[Json::json_pointer(place)]["more"] = 1;
    EXPECT_NE(
        said_to({run_, kTaskEnvelope, header.dump(), task.payload.bytes}).find("more, which this program does not"),
        std::string::npos)
        << place;
  }
  auto offer = record::write(offer_of(*experiment_));
  offer["more"] = 1;
  EXPECT_NE(said_to({run_, kOfferEnvelope, offer.dump()}), "");
  EXPECT_EQ(asked(task), "");
}

/// Lists the keys of the server's config that are paths, and gives each of them a folder that is not the node's.
std::vector<fed::ExperimentConfig> with_foreign_paths(const fed::ExperimentConfig& offered, const std::string& folder) {
  std::vector<fed::ExperimentConfig> all;
  auto names = offered;
  for (const auto& named : fed::path_keys(names)) {
    auto& changed = all.emplace_back(offered);
    for (const auto& key : fed::path_keys(changed)) {
      if (key.key != named.key) continue;
      if (key.path) *key.path = folder;
      if (key.paths) *key.paths = {folder};
    }
  }
  return all;
}

TEST_F(NodeGives, WritesIntoNoFolderThatAServerNames) {
  auto offer = offer_of(server_of(config()));
  auto offered_config = fed::ExperimentConfig::read(config::Table::parse(offer.config, "the offer"));
  offered_config.model.base_format = models::BaseFormat::kInt8;
  int accepted = 0;
  for (const auto& changed : with_foreign_paths(offered_config, path("victim/run"))) {
    restart();
    offer.run = run_ += 'd';  // another run for each offer
    offer.config = changed.text();
    accepted += offered(offer).empty() ? 1 : 0;
    EXPECT_FALSE(path_exists(path("victim"))) << offer.config;
  }
  EXPECT_GE(accepted, 2);  // model.base_cache and output.dir, which have no effect
  EXPECT_FALSE(entries_of(options_.folder / "base").empty());
}

TEST_F(NodeGives, ReadsNoFileThatAServerNames) {
  const Offer offer{.run = run_,
                    .client = 1,
                    .config = concat("[data]\ntask = \"files\"\nfiles = { train = [\"", path("train.jsonl"),
                                     "\"] }\n[clients]\ncount = 2\nbudgets = [0.5, 0.5]\n"),
                    .base = {},
                    .sites = {}};
  const auto said = testing::refusal([&] { node_config(offer, options_); });
  EXPECT_NE(said.find("a node reads none but its own: write a [[clients.client]] with `data`"), std::string::npos)
      << said;
}

TEST_F(NodeInRun, NoticesABitThatFlipsInWhatItAgreedTo) {
  join();
  ASSERT_EQ(asked(training()), "");
  const auto file = options_.folder / concat(run_, "-agreed.json");
  const auto whole = read_file(file);
  const auto first_line = whole.find('\n');
  ASSERT_LT(first_line + 1, whole.size()) << "the terms, then the request";
  for (const size_t at : {size_t{20}, first_line / 2, first_line + 20, whole.size() - 3}) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_file_atomic(file, damaged);
    restart();
    EXPECT_NE(offered(offer_of(*experiment_)), "") << at;
    EXPECT_EQ(read_file(file), damaged) << "nothing is written over it";
  }
  write_file_atomic(file, whole);
  restart();
  EXPECT_EQ(offered(offer_of(*experiment_, 1)), "");
}

TEST_F(NodeInRun, SendsNeitherAnswersNorTheirDigestsNorScoresOfRows) {
  join({"evaluate.items=true"});
  EXPECT_FALSE(acceptance().items);
  ASSERT_EQ(asked(scoring(2)), "");
  const auto scored = answered()["scored"];
  EXPECT_FALSE(scored.contains("items"));
  EXPECT_TRUE(scored["predictions"].empty());
  for (const auto* option : {"eyes", "surgery"}) {
    EXPECT_EQ(answer_.header.find(option), std::string::npos);
    EXPECT_EQ(answer_.header.find(sha256(option)), std::string::npos);
  }
}

TEST_F(NodeInRun, SendsScoresOfRowsIfBothSidesAgree) {
  options_.limits.items = true;
  join({"evaluate.items=true"});
  EXPECT_TRUE(acceptance().items);
  EXPECT_NE(summary_.find("scores of single rows"), std::string::npos) << summary_;
  ASSERT_EQ(asked(scoring(2)), "");
  EXPECT_EQ(answered()["scored"]["items"]["correct"].size(), 14u);
}

TEST_F(NodeInRun, SendsNoScoresOfRowsThatTheRunDoesNotAskFor) {
  options_.limits.items = true;
  join();
  EXPECT_FALSE(acceptance().items);
  ASSERT_EQ(asked(scoring(2)), "");
  EXPECT_FALSE(answered()["scored"].contains("items"));
}

TEST_F(NodeGives, NoScoresOfFewRowsButTrains) {
  write("test.jsonl", rows("visitor", 9));
  EXPECT_EQ(offered({}), "");
  EXPECT_EQ(acceptance().test_rows, 0);
  EXPECT_EQ(acceptance().examples, 9);
  EXPECT_NE(acceptance().no_scores.find("9 different test rows, and gives scores of 10 or more"), std::string::npos)
      << acceptance().no_scores;
  EXPECT_NE(summary_.find("no scores"), std::string::npos) << summary_;
}

TEST_F(NodeGives, NoScoresOfOneRowThatIsRepeated) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += rows("visitor", 1);
  write("test.jsonl", text);
  EXPECT_EQ(offered({}), "");
  EXPECT_NE(acceptance().no_scores.find("it has 1 different test rows"), std::string::npos) << acceptance().no_scores;
}

TEST_F(NodeInRun, WithFewRowsRefusesScoresOnly) {
  write("test.jsonl", rows("visitor", 6));
  join();
  EXPECT_NE(asked(scoring(2)).find("this node gives no scores: it has 6 different test rows"), std::string::npos);
  EXPECT_EQ(asked(training()), "");
}

TEST_F(NodeGives, ALowerLimitOfRowsIsTheOwnersToSet) {
  write("test.jsonl", rows("visitor", 6));
  options_.limits.min_test_rows = 6;
  EXPECT_EQ(offered({}), "");
  EXPECT_EQ(acceptance().test_rows, 6);
}

TEST_F(NodeGives, ARunThatScoresFewRowsIsNotJoined) {
  const auto said = offered({"evaluate.limit=1"});
  EXPECT_NE(said.find("evaluate.limit is 1 rows, and this node gives scores of 10 or more"), std::string::npos) << said;
  EXPECT_NE(offered({"evaluate.limit=9"}), "");
  EXPECT_EQ(offered({"evaluate.limit=10"}), "");
}

TEST_F(NodeInRun, ALimitOfTheRunIsKept) {
  join({"evaluate.limit=11"});
  ASSERT_EQ(asked(scoring(2)), "");
  EXPECT_EQ(answered()["scored"]["score"]["rows"], 11);
}

TEST_F(NodeInRun, RunsWhoseRowsDifferInAFewGetNoSecondScore) {
  join({"evaluate.limit=11"});
  ASSERT_EQ(asked(scoring(2)), "");
  restart();
  Offer other = offer_of(server_of(config({"evaluate.limit=12"})));
  other.run = "def";
  EXPECT_EQ(said_to({.run = "def", .kind = kOfferEnvelope, .header = record::write(other).dump()}), "");
  EXPECT_EQ(acceptance().test_rows, 0);
  EXPECT_NE(acceptance().no_scores.find("differ in "), std::string::npos) << acceptance().no_scores;
}

/// A request that was not agreed on.
struct Excess {
  const char* name;
  std::function<void(fed::Task& task)> change;
  const char* said;
};

fed::Score& score_in(fed::Task& task) { return std::get<fed::Score>(task.ask); }

const std::vector<Excess>& excess_of_scores() {
  static const std::vector<Excess> all = {
      {"Predictions", [](fed::Task& t) { score_in(t).predictions = true; }, "and to send its answers"},
      {"OtherRows", [](fed::Task& t) { score_in(t).own_rows = false; }, "agreed on: scores on its own rows"},
      {"AnotherTask", [](fed::Task& t) { score_in(t).task = "boolq"; }, "asked to score boolq"},
      {"AnotherBudget", [](fed::Task& t) { t.client.budget = 0.75; }, "asked to score at budget 0.75"},
      {"AnotherMode", [](fed::Task& t) { score_in(t).rank_eval_mode = "a"; }, "rank evaluation mode"},
      {"AnotherK", [](fed::Task& t) { t.client.top_k = 1; }, "asked to score with K = 1"},
      {"AHigherRank", [](fed::Task& t) { t.client.rank = 40; }, "rank 40"},
      {"AnotherRound", [](fed::Task& t) { t.round = 1; }, "when the run is not evaluated"},
      {"ARoundTooMany", [](fed::Task& t) { t.round = 3; }, "when the run is not evaluated"},
      {"ATrainingProfile", [](fed::Task& t) { t.client.trains = true; }, "asked to score with"},
      {"AnotherClient", [](fed::Task& t) { t.client.id = 0; }, "a task for client 0, this is client 1"},
  };
  return all;
}

const std::vector<Excess>& excess_of_training() {
  static const std::vector<Excess> all = {
      {"AnotherK", [](fed::Task& t) { t.client.top_k = 4; }, "asked to train with K = 4"},
      {"AnotherBudget", [](fed::Task& t) { t.client.budget = 1; }, "at budget 1"},
      {"AHigherRank", [](fed::Task& t) { t.client.rank = 4; }, "a task of rank 4"},
      {"OtherRows", [](fed::Task& t) { t.client.examples = 1; }, "on 1 examples"},
      {"AScoringProfile", [](fed::Task& t) { t.client.trains = false; }, "asked to train"},
      {"ARoundTooMany", [](fed::Task& t) { t.round = 2; }, "asked to train after 2 rounds, agreed on: 2 rounds"},
      {"AnotherRate", [](fed::Task& t) { t.ask = fed::Train{.lr = 100}; }, "a learning rate of 100"},
      {"Gradients",
       [](fed::Task& t) {
         t.ask = fed::SumGradients{{"model.layers.0.self_attn.q_proj"}, {.rows = 1}};
       },
       "which was not agreed on"},
      {"GradientsOfNothing", [](fed::Task& t) { t.ask = fed::SumGradients{}; }, "asked for gradients"},
  };
  return all;
}

class RefusedScore : public NodeInRun, public ::testing::WithParamInterface<size_t> {};
TEST_P(RefusedScore, IsNotGiven) {
  const auto& excess = excess_of_scores()[GetParam()];
  join();
  auto task = scoring(2);
  excess.change(task);
  const auto said = asked(task);
  EXPECT_NE(said.find(excess.said), std::string::npos) << said;
  EXPECT_EQ(asked(scoring(2)), "") << "the node goes on";
}
INSTANTIATE_TEST_SUITE_P(Requests, RefusedScore, ::testing::Range(size_t{0}, excess_of_scores().size()),
                         [](const auto& info) { return std::string(excess_of_scores()[info.param].name); });

class RefusedTraining : public NodeInRun, public ::testing::WithParamInterface<size_t> {};
TEST_P(RefusedTraining, IsNotDone) {
  const auto& excess = excess_of_training()[GetParam()];
  join();
  auto task = training();
  excess.change(task);
  const auto said = asked(task);
  EXPECT_NE(said.find(excess.said), std::string::npos) << said;
  EXPECT_EQ(asked(training()), "") << "the node goes on";
}
INSTANTIATE_TEST_SUITE_P(Requests, RefusedTraining, ::testing::Range(size_t{0}, excess_of_training().size()),
                         [](const auto& info) { return std::string(excess_of_training()[info.param].name); });

TEST_F(NodeInRun, TrainsAndScoresOnceWithOtherContent) {
  join();
  auto task = training(), score = scoring(2);
  EXPECT_EQ(asked(task), "");
  EXPECT_EQ(asked(task), "") << "a reply was lost";
  EXPECT_EQ(asked(score), "");
  task.payload = score.payload = another_adapter();
  const std::string other = "with other content than before";
  EXPECT_NE(asked(task).find(other), std::string::npos) << asked(task);
  EXPECT_NE(asked(score).find(other), std::string::npos) << asked(score);
  restart();
  ASSERT_EQ(offered(offer_of(*experiment_, 2)), "");
  EXPECT_NE(asked(score).find(other), std::string::npos) << "a restart of the node changes nothing: " << asked(score);
}

TEST_F(NodeInRun, TheSameAdapterOnAnotherSharedStateIsOtherContent) {
  join({}, "ffa-lora");
  synchronise();
  const auto task = scoring(2);
  EXPECT_EQ(asked(task), "");
  EXPECT_EQ(asked(task), "");
  for (auto& [site, f] : state_.common.fixed) f.a = f.a * 2;
  synchronise();
  EXPECT_NE(asked(task).find("with other content than before"), std::string::npos) << asked(task);
}

TEST_F(NodeInRun, TrainsNoRoundThatIsOver) {
  join({"train.rounds=4"});
  EXPECT_EQ(asked(training(2)), "");
  EXPECT_NE(asked(training(1)).find("which is over"), std::string::npos) << asked(training(1));
  EXPECT_EQ(asked(training(3)), "");
}

TEST_F(NodeInRun, RepeatsRoundsOfAServerThatWentBack) {
  join({"train.rounds=4"});
  for (const int64_t round : {0, 1, 2}) EXPECT_EQ(asked(training(round)), "") << round;
  ASSERT_EQ(offered(offer_of(*experiment_, 1)), "") << "the server restored its state of one round";
  auto again = training(1);
  again.payload = another_adapter();
  EXPECT_EQ(asked(again), "");
  EXPECT_EQ(asked(training(2)), "");
  auto before = training(0);
  before.payload = another_adapter();
  EXPECT_NE(asked(before), "") << "the first round was not taken back";
}

TEST_F(NodeInRun, RepeatsAreCounted) {
  join({"train.rounds=4"});
  std::string said;
  int repeats = 0;
  for (; repeats < 40 && said.empty(); ++repeats) {
    ASSERT_EQ(offered(offer_of(*experiment_)), "");
    auto task = training();
    state_.global.adapters.begin()->second.b.fill_(0.001 * repeats);
    task.payload = lora::encode(state_.global, lora::TransportDtype::kFloat32, server().sites);
    said = asked(task);
  }
  EXPECT_EQ(repeats, 10) << said;
  EXPECT_NE(said.find("more than 8 requests with other content"), std::string::npos) << said;
}

TEST_F(NodeInRun, GradientsAreThoseOfTheMethodsSampleBeforeTheFirstRound) {
  const std::initializer_list<std::string> settings = {"method.fed-sb.init=\"federated\"", "method.fed-sb.samples=8"};
  experiment_.emplace(server_of(config(settings, "fed-sb")));
  ASSERT_EQ(offered(offer_of(*experiment_)), "");
  const auto site = server().sites.begin()->first;
  const auto gradients = [&](const methods::GradientSample& sample, int64_t round = 0) {
    return asked({.round = round, .client = server().clients[1], .ask = fed::SumGradients{{site}, sample}});
  };
  const methods::GradientSample agreed{.rows = 8, .from = methods::SampleFrom::kClients};
  EXPECT_EQ(gradients(agreed), "");
  EXPECT_NE(gradients({.rows = 1, .from = methods::SampleFrom::kClients}).find("agreed on: 8 rows"), std::string::npos);
  EXPECT_NE(gradients(agreed, 1), "");
}

/// A change of the run's config between two offers.
struct Change {
  std::string setting;
  const char* said;  // nothing: the change is allowed
};

/// Puts the template that the server has in `file` into an offer of its run.
Offer with_template(Offer offer, const fed::Experiment& e, const std::string& file) {
  offer.chat_template = read_file(file);
  offer.named_tokens = named_tokens_digest(e.fabric.context.tokenizer);
  return offer;
}

class ChangedOffer : public NodeGives, public ::testing::WithParamInterface<Change> {};
TEST_P(ChangedOffer, IsRefusedIfTheNodeWouldDoOrGiveOtherThings) {
  const auto& [setting, said] = GetParam();
  ASSERT_EQ(offered({}), "");
  restart();
  const auto reason = offered({setting});
  if (*said == 0) {
    EXPECT_EQ(reason, "");
    return;
  }
  EXPECT_NE(reason.find("the run is not what this node agreed to before"), std::string::npos) << reason;
  EXPECT_NE(reason.find(said), std::string::npos) << reason;
  EXPECT_EQ(offered({}), "") << "the run as it was agreed on";
}
INSTANTIATE_TEST_SUITE_P(
    Keys, ChangedOffer,
    ::testing::Values(Change{"train.local_epochs=2.0", "train.local_epochs is 2.0, agreed on: 1.0"},
                      Change{"train.optimizer.lr=0.5", "train.optimizer.lr is 0.5"},
                      Change{"evaluate.limit=12", "evaluate.limit is 12, agreed on: 0"},
                      Change{"evaluate.items=true", "evaluate.items is true"},
                      Change{"evaluate.max_new_tokens=1", "evaluate.max_new_tokens is 1"},
                      Change{"train.rounds=1", "train.rounds is 1, agreed on: 2"}, Change{"seed=4", "seed is 4"},
                      Change{"data.cutoff=64", "data.cutoff is 64"}, Change{"lora.rank=2", "lora.rank is 2"},
                      Change{"data.files.split_seed=9", "data.files.split_seed is 9"}, Change{"train.rounds=9", ""},
                      Change{"clients.deadline=9", ""}, Change{"clients.update_norm=5", ""},
                      Change{"clients.participation=0.5", ""}, Change{"evaluate.every=1", ""},
                      Change{"evaluate.budgets=[1.0]", ""}));

TEST_F(NodeGives, AChangedRunIsJoinedByTheOwnersWord) {
  ASSERT_EQ(offered({}), "");
  restart();
  options_.agreed = path("agreed.toml");
  write("agreed.toml", config({"train.local_epochs=2.0"})->text());
  EXPECT_EQ(offered({"train.local_epochs=2.0"}), "");
  EXPECT_NE(offered({"train.local_epochs=3.0"}).find("train.local_epochs"), std::string::npos);
  EXPECT_NE(offered({"train.local_epochs=2.0", "evaluate.items=true"}).find("evaluate.items"), std::string::npos);
}

/// Settings by which an update would be of a single row, and what is said then.
class SingleRows : public NodeGives, public ::testing::WithParamInterface<Change> {};
TEST_P(SingleRows, AreNotTrainedOn) {
  const auto& [setting, said] = GetParam();
  const auto reason = offered({setting});
  EXPECT_NE(reason.find(said), std::string::npos) << reason;
  options_.limits.min_train_rows = 1;
  restart();
  EXPECT_EQ(offered({setting}), "");
}
INSTANTIATE_TEST_SUITE_P(Keys, SingleRows,
                         ::testing::Values(Change{"data.limit=1",
                                                  "an update would be of 1 of this node's rows (data.limit is 1"},
                                           Change{"train={ local_epochs = 0.01, batch_size = 1, accumulation = 1 }",
                                                  "train.local_epochs 0.01, batch_size 1"}));

TEST_F(NodeGives, AHigherLimitOfTrainedRowsIsTheOwnersToSet) {
  options_.limits.min_train_rows = 4;
  EXPECT_NE(offered({"data.limit=3"}).find("allowed: 4 or more (--min-train-rows)"), std::string::npos);
  EXPECT_EQ(offered({"data.limit=4"}), "");
}

TEST_F(NodeGives, NoGradientsOfASingleRow) {
  const auto begun_with = [&](std::string_view samples) {
    const auto fed_sb = config({"method.fed-sb.init=federated", concat("method.fed-sb.samples=", samples)}, "fed-sb");
    return offered(offer_of(server_of(fed_sb)));
  };
  const auto said = begun_with("2");
  EXPECT_NE(said.find("would begin with gradients of 1 of this node's rows (a sample of 2 from 2"), std::string::npos)
      << said;
  EXPECT_EQ(begun_with("3"), "");
}

TEST_F(NodeGives, AllRowsOfANodeWithOneAreEnough) {
  write("train.jsonl", rows("pupil", 1));
  EXPECT_EQ(offered({}), "");
  EXPECT_NE(offered({"data.limit=1"}), "") << "it may have more";
}

/// Refuses all patients but the first.
constexpr const char* kOnePatient =
    "{% if 'patient' in messages[0].content and 'patient 0?' not in messages[0].content %}{{ raise_exception('no') }}"
    "{% endif %}{% for message in messages %}{{ message.content }}{% endfor %}";

TEST_F(NodeGives, RowsThatATemplateRefusesAreStillRowsThatItHas) {
  write("own.jinja", kOnePatient);
  const auto e = server_of(config(
      {"data.files.strict=false", "data.template=\"chat\"", concat("data.chat_template=\"", path("own.jinja"), "\"")}));
  const auto offer = with_template(offer_of(e), e, path("own.jinja"));
  const auto said = offered(offer);
  EXPECT_NE(said.find("an update would be of 1 of this node's rows"), std::string::npos) << said;
  EXPECT_NE(said.find("left out by data.files or the chat template: 8"), std::string::npos) << said;
  EXPECT_NE(said.find("allowed: 2 or more (--min-train-rows)"), std::string::npos) << said;
  options_.limits.min_train_rows = 1;
  restart();
  EXPECT_EQ(offered(offer), "");
}

TEST_F(NodeGives, RowsThatARunCannotReadAreStillRowsThatItHas) {
  const auto* options = R"(data.files={ strict = false, score = "choice", options = ["eyes", "secret"] })";
  options_.limits.min_train_rows = 20;
  const auto said = offered({options});
  EXPECT_NE(said.find("an update would be of 3 of this node's rows"), std::string::npos) << said;
  EXPECT_NE(said.find("left out by data.files or the chat template: 6"), std::string::npos) << said;
  EXPECT_NE(said.find("allowed: 9 or more"), std::string::npos) << "it has no more: " << said;
  options_.limits.min_train_rows = 3;
  restart();
  EXPECT_EQ(offered({options}), "");
}

TEST_F(NodeGives, RowsThatARunHoldsOutAreStillRowsThatItHas) {
  options_.test.clear();
  const auto said = offered({"data.files.held_out=0.9"});
  EXPECT_NE(said.find("an update would be of 1 of this node's rows"), std::string::npos) << said;
  EXPECT_NE(said.find("held out: 8)"), std::string::npos) << said;
  options_.limits.min_train_rows = 1;
  restart();
  EXPECT_EQ(offered({"data.files.held_out=0.9"}), "");
}

TEST_F(NodeGives, RoundsThatTakeTooManyPassesAreNotJoined) {
  auto said = offered({"train.local_epochs=100000.0"});
  EXPECT_NE(said.find("train.local_epochs is 100000"), std::string::npos) << said;
  EXPECT_NE(said.find("up to 10000 (--most-steps)"), std::string::npos) << said;
  EXPECT_NE(offered({"train.accumulation=20000"}).find("--most-steps"), std::string::npos);
  EXPECT_NE(offered({"train.batch_size=65000", "train.accumulation=100"}).find("--most-steps"), std::string::npos);
  EXPECT_EQ(offered({}), "");
  EXPECT_NE(summary_.find("4 passes through the model per round (limit: 10000), 2 rounds"), std::string::npos)
      << summary_;
}

TEST_F(NodeInRun, ScoresOfChangedFilesAreNotGiven) {
  join();
  EXPECT_EQ(asked(training()), "");
  write("test.jsonl", rows("visitor", 13));
  EXPECT_NE(asked(scoring(2)).find("row"), std::string::npos);
  EXPECT_EQ(asked(training(1)), "");
}

TEST_F(NodeInRun, NewsOfAnUnknownRoundIsRefused) {
  join();
  const fed::StateUpdate news{.round = 9, .whole = true};
  EXPECT_NE(said_to({.run = run_, .kind = kUpdateEnvelope, .header = fed::header_of(news)}).find("9 rounds"),
            std::string::npos);
}

TEST_F(NodeInRun, AMessageThatIsNotOfTheKindOfItsEnvelopeIsRefused) {
  join();
  const auto task = training();
  const auto news = server().full_sync(state_);
  EXPECT_NE(
      said_to({run_, kUpdateEnvelope, fed::header_of(task), task.payload.bytes}).find("kind news that holds none"),
      std::string::npos);
  EXPECT_NE(said_to({run_, kTaskEnvelope, fed::header_of(news), news.payload.bytes}).find("kind task that holds none"),
            std::string::npos);
  const auto audit = read_file(options_.folder / fed::kAuditFile);
  EXPECT_NE(audit.find("asked: news; refused: "), std::string::npos) << audit;
  EXPECT_EQ(asked(task), "") << "the node goes on";
}

TEST_F(NodeGives, AnExceptionOfAnyTypeRefusesTheRequestUnlessItEndsTheNode) {
  options_.on_agreement = [](const std::string&) { throw std::out_of_range("a value of a row"); };
  EXPECT_EQ(offered({}), "[internal] a defect of the node's program; the node's log says why");
  const auto expect_to_pass = [&]<typename Exception>(const Exception& exception) {
    options_.on_agreement = [exception](const std::string&) { throw exception; };
    restart();
    EXPECT_THROW(offered({}), Exception);
  };
  expect_to_pass(Interrupted("stopped"));
  expect_to_pass(Stopped());
  expect_to_pass(RunOver());
}

TEST_F(NodeInRun, BringsNoPayloadIntoMemoryThatItHasNotAgreedTo) {
  join();
  const auto takes = [&](const std::string& run, const char* kind, int64_t bytes) {
    return node().consent({.run = run, .kind = kind, .header = "{}"}, bytes);
  };
  for (const auto* laden : {kUpdateEnvelope, kTaskEnvelope, kAdapterEnvelope}) {
    EXPECT_TRUE(takes(run_, laden, 1000)) << laden;
    EXPECT_THROW(takes(run_, laden, int64_t{1} << 34), Error) << laden;
    EXPECT_FALSE(takes("another", laden, 1)) << "the node says that it does not know the run: " << laden;
  }
  for (const auto* bare : {kOfferEnvelope, kShutdownEnvelope, kRefusalEnvelope, kMaskKeysEnvelope, kUnmaskEnvelope})
    for (const auto& run : {run_, std::string("another")}) {
      EXPECT_NO_THROW(takes(run, bare, 0)) << bare;
      EXPECT_THROW(takes(run, bare, 1), Error) << bare;
    }
}

TEST_F(NodeGives, ARefusedOfferLeavesNoFile) {
  write("own.jinja", "{% for message in messages %}{{ message.content }}{% endfor %}");
  const auto e =
      server_of(config({"data.template=\"chat\"", concat("data.chat_template=\"", path("own.jinja"), "\"")}));
  const auto offer = with_template(offer_of(e), e, path("own.jinja"));
  const auto files = [&] {
    std::vector<std::string> names;
    for (const auto& entry : entries_of(options_.folder))
      if (const auto name = entry.filename().string(); name.starts_with(run_)) names.push_back(name);
    std::sort(names.begin(), names.end());
    return names;
  };
  auto other = offer;
  other.sites = "other sites";
  EXPECT_NE(offered(other), "");
  EXPECT_EQ(files(), std::vector<std::string>());
  options_.on_agreement = [](const std::string&) { fail(kConfig, "no"); };
  restart();
  EXPECT_NE(offered(offer), "") << "everything was looked at";
  EXPECT_EQ(files(), std::vector<std::string>());
  options_.on_agreement = {};
  restart();
  ASSERT_EQ(offered(offer), "");
  const auto agreed = files();
  EXPECT_EQ(std::count(agreed.begin(), agreed.end(), concat(run_, "-chat_template.jinja")), 1);
  EXPECT_NE(offered(other), "");
  EXPECT_EQ(files(), agreed) << "what an earlier agreement needs stays";
}

TEST_F(NodeInRun, ALikelihoodOfAFewRowsIsKeptBack) {
  std::string text = rows("visitor", 12);
  text += "{\"prompt\": \"Which ward for all others?\", \"completion\": \"x\"}\n";
  for (auto at = text.find("eyes"); at != text.npos; at = text.find("eyes")) text.replace(at, 4, std::string(90, 'y'));
  for (auto at = text.find("surgery"); at != text.npos; at = text.find("surgery"))
    text.replace(at, 7, std::string(90, 'z'));
  write("test.jsonl", text);
  join({"data.files.score=\"f1\"", "data.files.options=[]", "evaluate.max_new_tokens=4"});
  ASSERT_EQ(asked(scoring(2)), "");
  const auto score = answered()["scored"]["score"];
  EXPECT_EQ(score["rows"], 13);
  EXPECT_EQ(score["likelihood_rows"], 0);
  EXPECT_FALSE(score.contains("log_likelihood"));
}

}  // namespace
}  // namespace evenkeel::flower
