// Tests of a whole federation in one process.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/format/safetensors.h"
#include "fed/config/client_rows.h"
#include "fed/store/audit.h"
#include "flower/federation/agreement.h"
#include "flower/federation/federation_testing.h"
#include "flower/federation/rows_error.h"

namespace evenkeel::flower {
namespace {

class FederationOf : public Federation, public ::testing::WithParamInterface<std::string_view> {};

TEST(Offer, NamesNoFileOfTheServer) {
  auto asked = fed::ExperimentConfig::read(config::Table::parse(testing::kSmallRun, "unit.toml"));
  asked.model.path = "/srv/secret/model";
  asked.data.path = "/srv/secret/data";
  asked.data.files.train = {"/srv/secret/a.jsonl", "/srv/secret/*.json"};
  asked.data.files.test = {"/srv/secret/b.jsonl"};
  asked.output.dir = "/srv/secret/run";
  asked.evaluate.bert_score.encoder = "/srv/secret/encoder";
  asked.data.form = data::PromptTemplate::kChat;
  asked.lora.init = "/srv/secret/adapter";
  asked.data.chat_template = "/srv/secret/template.jinja";
  const auto text = offered_text(fed::settle(std::move(asked), {}));
  EXPECT_EQ(text.find("/srv/secret"), std::string::npos) << text;
  const auto read = fed::ExperimentConfig::read(config::Table::parse(text, "the server's offer"));
  EXPECT_EQ(read.lora.init, kAdapterAtServer);
  EXPECT_EQ(read.data.chat_template, kTemplateInOffer);
  EXPECT_EQ(read.model.path, kModelAtServer);
  EXPECT_EQ(read.data.path, kRowsAtServer);
  EXPECT_EQ(read.data.files.train, std::vector<std::string>{std::string(kRowsAtServer)});
  EXPECT_EQ(read.data.files.test, std::vector<std::string>{std::string(kRowsAtServer)});
}

/// A config of three clients: the first two have a budget of their own, the second a rank too.
fed::RunConfig own_budgets(std::string_view method) {
  const std::string clients = concat("[method]\nname = \"", method, R"("
[lora]
rank = 8
[clients]
count = 3
[[clients.client]]
budget = 0.25
[[clients.client]]
budget = 0.5
rank = 3
[[clients.client]]
)");
  return fed::settle(fed::ExperimentConfig::read(config::Table::parse(clients, "unit.toml")), {});
}

TEST(Budget, OfANodeReplacesThatOfTheClientsSection) {
  for (const int64_t client : {0, 1, 2}) {
    const auto config = with_budgets(own_budgets("hetlora"), {{client, 1.0}});
    const auto again = fed::ExperimentConfig::read(config::Table::parse(config->text(), "config.toml"));
    const auto settled = fed::settle(again, {});
    for (size_t id = 0; id < 3; ++id) {
      EXPECT_EQ(settled.plans()[id].budget, config.plans()[id].budget) << client;
      EXPECT_EQ(settled.plans()[id].rank, config.plans()[id].rank) << client;
    }
    EXPECT_EQ(settled.plan(client).budget, 1.0);
    EXPECT_EQ(settled.plan(client).rank, 8);
    EXPECT_EQ(config->clients.client[2].budget, std::nullopt);
  }
}

TEST(Offer, NamesNoFileOfTheServersSets) {
  auto asked = fed::ExperimentConfig::read(config::Table::parse(testing::kSmallRun, "unit.toml"));
  asked.data.files.sets["talk"].train = {"/srv/secret/a.jsonl"};
  const auto text = offered_text(fed::settle(std::move(asked), {}));
  EXPECT_EQ(text.find("/srv/secret"), std::string::npos) << text;
  const auto read = fed::ExperimentConfig::read(config::Table::parse(text, "the server's offer"));
  EXPECT_EQ(read.data.files.sets.at("talk").train, std::vector<std::string>{std::string(kRowsAtServer)});
  EXPECT_TRUE(read.data.files.sets.at("talk").test.empty());
}

TEST_P(FederationOf, NodesGiveTheBitsOfALocalRun) {
  const auto here = folder_.path() / "here", apart = folder_.path() / "apart";
  const auto scores = local(request(GetParam(), here));
  const auto run = served(request(GetParam(), apart));
  expect_same_runs(here, apart);
  ASSERT_EQ(run.scores.size(), scores.size());
  for (size_t i = 0; i < scores.size(); ++i) EXPECT_EQ(run.scores[i].accuracy, scores[i].accuracy);
}
INSTANTIATE_TEST_SUITE_P(Methods, FederationOf, ::testing::Values("ub-smoe", "flora", "hetlora", "ffa-lora"),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::erase(name, '-');
                           return name;
                         });

class ChangedBase : public Federation, public ::testing::WithParamInterface<std::string_view> {};

/// With this seed, client 0 is idle in round 2 and drawn in round 3. Node 1 is killed after it has trained twice.
TEST_P(ChangedBase, ReachesIdleClientsAndThoseWhoseNodeIsRestarted) {
  const auto here = folder_.path() / "here", apart = folder_.path() / "apart";
  const std::initializer_list<std::string> partly = {"threads=1", "clients.participation=0.67", "train.rounds=6"};
  std::atomic<int> replies = 0;
  const auto kill = [&](Envelope& envelope) {
    if (envelope.kind == kReplyEnvelope && ++replies == 2) throw Killed();
  };
  local(request(GetParam(), here, partly));
  served(request(GetParam(), apart, partly), {{1, kill}});
  EXPECT_GT(replies, 2);
  expect_same_runs(here, apart);
  for (const auto& record : rounds(apart)) EXPECT_FALSE(record.lost) << "round " << record.round;
}
INSTANTIATE_TEST_SUITE_P(Methods, ChangedBase, ::testing::Values("flora", "fedex-lora", "florist"),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::erase(name, '-');
                           return name;
                         });

TEST_F(Federation, WhoSaysToHaveMoreExamplesThanAreAllowedIsNotLetIn) {
  const auto here = folder_.path() / "here", apart = folder_.path() / "apart";
  std::atomic<int> offers = 0;
  const auto boast = [&](Envelope& envelope) {
    if (envelope.kind != kAcceptanceEnvelope) return;
    auto json = OrderedJson::parse(envelope.header);
    json["examples"] = 1'000'000'000;
    envelope.header = json.dump();
    ++offers;
  };
  const std::initializer_list<std::string> bounded = {"threads=1", "clients.most_examples=1000"};
  local(request("fedit", here, bounded));
  admitted_ = [&] { return offers > 0; };
  served(request("fedit", apart, bounded), {{0, boast}}, 4);
  expect_same_runs(here, apart);
}

TEST_F(Federation, WhoseBudgetUsesNoExpertIsNotLetIn) {
  const auto here = folder_.path() / "here", apart = folder_.path() / "apart";
  std::atomic<int> offers = 0;
  const auto starve = [&](Envelope& envelope) {
    if (envelope.kind != kAcceptanceEnvelope) return;
    auto json = OrderedJson::parse(envelope.header);
    json["budget"] = 0.01;
    envelope.header = json.dump();
    ++offers;
  };
  local(request("ub-smoe", here));
  admitted_ = [&] { return offers > 0; };
  served(request("ub-smoe", apart), {{0, starve}}, 4);
  expect_same_runs(here, apart);
}

TEST_F(Federation, WhoComesBackWithAnotherBudgetIsToldWhy) {
  const auto out = folder_.path() / "run";
  served(request("ub-smoe", out, {"train.rounds=1"}));
  change_ = [](int64_t node, NodeClientOptions& options) {
    if (node == 1) options.budget = 0.75;
  };
  resume_ = true;
  over_ = false;
  patient_ = 1;
  served(request("ub-smoe", out, {"train.rounds=2"}));
  const auto record = rounds(out).at(1);
  ASSERT_TRUE(record.lost && record.lost->size() == 1u);
  const auto& reason = record.lost->at(0).reason;  // in the words of the node
  EXPECT_NE(reason.find("this node comes back with budget 0.75 and "), std::string::npos) << reason;
  EXPECT_NE(reason.find(" examples, agreed on: "), std::string::npos) << reason;
}

/// Changes the second acceptance of a node, with which it comes back to a run that it has joined.
Edit on_return(const std::function<void(OrderedJson& acceptance)>& change) {
  return [change, count = std::make_shared<int>(0)](Envelope& envelope) {
    if (envelope.kind != kAcceptanceEnvelope || ++*count != 2) return;
    auto json = OrderedJson::parse(envelope.header);
    change(json);
    envelope.header = json.dump();
  };
}

/// Returns the changes of all members of a run's roster.
std::vector<MemberChange> changes_in(const fs::path& run) {
  const Roster roster(run / "federation" / "members.json");
  std::vector<MemberChange> changes;
  for (const auto& [client, member] : roster.members())
    changes.insert(changes.end(), member.changes.begin(), member.changes.end());
  return changes;
}

TEST_F(Federation, AnotherProgramOfANodeThatReturnsIsRecorded) {
  const auto out = folder_.path() / "run";
  served(request("fedit", out, {"train.rounds=1"}),
         {{1, on_return([](OrderedJson& acceptance) { acceptance["program"] = "9.9"; })}});
  EXPECT_FALSE(rounds(out).at(0).lost);
  const auto changes = changes_in(out);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].what, "program");
  EXPECT_EQ(changes[0].was, version());
}

TEST_F(Federation, AnotherContentOfANodeThatReturnsIsRefusedOrRecordedAsTheConfigSays) {
  const auto other_rows = [](OrderedJson& acceptance) { acceptance["content"]["rows"] = std::string(64, '0'); };
  const auto refused = folder_.path() / "refused", recorded = folder_.path() / "recorded";
  served(request("fedit", refused, {"train.rounds=1"}), {{1, on_return(other_rows)}});
  const auto lost = rounds(refused).at(0).lost;
  ASSERT_TRUE(lost && lost->size() == 1u);
  EXPECT_NE(lost->at(0).reason.find("another content than it joined with: rows"), std::string::npos);
  EXPECT_TRUE(changes_in(refused).empty());
  over_ = false;
  served(request("fedit", recorded, {"train.rounds=1", "clients.on_change=\"record\""}), {{1, on_return(other_rows)}});
  EXPECT_FALSE(rounds(recorded).at(0).lost);
  const auto changes = changes_in(recorded);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].what, "rows");
  EXPECT_EQ(changes[0].was.size(), 64u);
}

/// Returns the clients of the events about the final adapter in a server's audit log.
std::vector<int64_t> handed_out(const fs::path& run) {
  std::vector<int64_t> clients;
  fed::read_audit(run / "federation" / fed::kAuditFile, [&](const fed::AuditLine& line) {
    if (line.event.kind != fed::AuditKind::kAdapter) return;
    EXPECT_EQ(line.event.outcome, "the node has the final adapter");
    clients.push_back(line.event.client.value_or(-1));
  });
  std::sort(clients.begin(), clients.end());
  return clients;
}

TEST_F(Federation, ANodeThatHasTheFinalAdapterByTheAuditLogIsNotSentItAgain) {
  const auto out = folder_.path() / "run";
  served(request("fedit", out, {"train.rounds=1"}));
  EXPECT_EQ(handed_out(out), (std::vector<int64_t>{0, 1, 2}));
  resume_ = true;
  over_ = false;
  constexpr std::string_view kNotSent = "nodes that have the final adapter by the audit log are not sent it again";
  const auto log_of_resume = [&](const char* rounds) {
    ::testing::internal::CaptureStderr();
    served(request("fedit", out, {rounds}));
    return ::testing::internal::GetCapturedStderr();
  };
  const auto finished = log_of_resume("train.rounds=1");
  EXPECT_EQ(handed_out(out), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_NE(finished.find(kNotSent), std::string::npos) << finished;
  EXPECT_NE(finished.find("copy adapter/ of the run folder"), std::string::npos) << finished;
  const auto longer = log_of_resume("train.rounds=2");
  EXPECT_EQ(handed_out(out), (std::vector<int64_t>{0, 0, 1, 1, 2, 2})) << "another adapter";
  EXPECT_EQ(longer.find(kNotSent), std::string::npos) << longer;
}

TEST_F(Federation, WhoCannotStoreTheFinalAdapterEndsWithAnError) {
  write_file_atomic(folder_.path() / "file", "no folder");
  change_ = [this](int64_t node, NodeClientOptions& options) {
    options.adapters = folder_.path() / (node == 2 ? "file" : "adapters");
  };
  failing_ = 2;
  served(request("fedit", folder_.path() / "run", {"train.rounds=1"}));
  EXPECT_NE(failure_.find((folder_.path() / "file").string()), std::string::npos) << failure_;
  EXPECT_TRUE(is_folder(folder_.path() / "adapters")) << "of the others";
}

TEST_F(Federation, AServerThatCannotStoreUploadsEndsAndBlamesNoClient) {
  prepare_ = [](const fs::path& folder) { write_file_atomic(folder / "arriving", "no folder"); };
  try {
    served(request("fedit", folder_.path() / "run", {"train.rounds=1"}));
    FAIL() << "the run ended well";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kIo) << error.what();
    EXPECT_NE(std::string_view(error.what()).find("arriving"), std::string_view::npos) << error.what();
  }
}

/// The reason that a node gives the server for refusing an offer, with these rows as its own.
class OfferOfOwnRows : public Federation {
 protected:
  std::string refused(const std::string& train, const std::string& test = "") {
    const auto write = [&](const char* name, const std::string& text) {
      const auto file = (folder_.path() / name).string();
      write_file_atomic(file, text);
      return std::vector{file};
    };
    auto options = client(0);
    options.data = write("bad.jsonl", train);
    if (!test.empty()) options.test = write("bad-test.jsonl", test);
    NodeClient node(options);
    try {
      node.answer(offer());
    } catch (const Error& error) {
      whole_ = error.what();
      return reason_for_server(error);
    }
    return "accepted";
  }

  /// A run whose one client has rows of its own.
  fed::RunRequest request_of_own_rows() const {
    auto request = Federation::request("fedit", folder_.path() / "run");
    for (const auto* setting :
         {"data.task=files", "data.limit=0", "clients.budgets=[]", "clients.count=1", "evaluate.tasks=[\"files\"]",
          "evaluate.per_client=true", "evaluate.limit=0",
          R"(data.files={ score = "choice", held_out = 0.5, options = ["hardware", "account"] })",
          R"(clients.client=[{ name = "a", budget = 0.25, data = ["own.jsonl"], test = ["own.jsonl"] }])"})
      request.settings.emplace_back(setting);
    return request;
  }

  Envelope offer() const {
    const auto config = fed::settle(without_rows(request_of_own_rows().config()), {});
    const Offer offer{.run = "abc", .config = offered_text(config), .base = {}, .sites = sites()};
    return {.run = "abc", .kind = kOfferEnvelope, .header = record::write(offer).dump()};
  }

  static std::string sites() { return sites_digest(experiment("fedit").server.sites); }

  std::string whole_;
};

constexpr const char* kGood = "{\"prompt\": \"a secret question\", \"completion\": \"account\"}\n";

TEST_F(OfferOfOwnRows, NoValueOfARowIsToldToTheServer) {
  EXPECT_EQ(refused(kGood, kGood), "accepted") << whole_;
  const std::string rest = ": this row or file cannot be used; the node's log says why";
  for (const std::string row :
       {R"({"prompt": "a secret question", "completion": "kidney"})",
        R"({"prompt": ["kidney"], "completion": "account"})", R"({"kidney": "a secret question"})",
        R"({"prompt": "a secret question", "completion": {"kidney": 1}})", R"({"prompt": "kidney", "comple)"}) {
    EXPECT_EQ(refused(row + "\n" + kGood), "[data] bad.jsonl:1" + rest) << whole_;
    EXPECT_EQ(refused(kGood, kGood + row + "\n"), "[data] bad-test.jsonl:2" + rest) << whole_;
  }
  refused(concat(R"({"prompt": "a secret question", "completion": "kidney"})", "\n"));
  EXPECT_NE(whole_.find("kidney"), std::string::npos) << "the node's own log has the value";
  const auto audit = read_file(folder_.path() / "memory-0" / fed::kAuditFile);
  EXPECT_EQ(audit.find("kidney"), std::string::npos);
  EXPECT_EQ(audit.find("secret"), std::string::npos);
  EXPECT_NE(audit.find("\"kind\":\"refused\""), std::string::npos);
}

/// Writes a file of rows that a node has.
std::string own_rows(const fs::path& folder) {
  const auto file = folder / "own.jsonl";
  std::string rows;
  for (int64_t i = 0; i < 8; ++i)
    rows +=
        concat(R"({"prompt": "question )", i, R"(", "completion": ")", i % 3 == 0 ? "hardware" : "account", "\"}\n");
  write_file_atomic(file, rows);
  return file.string();
}

TEST_F(OfferOfOwnRows, APayloadThatIsNotThereIsAskedFor) {
  auto options = client(0);
  options.data = {own_rows(folder_.path())};
  NodeClient node(options);
  node.answer(offer());
  const fed::Task task{.client = {.id = 0}, .ask = fed::Score{.task = "files", .own_rows = true}};
  const auto answer = node.answer(
      {.run = "abc", .kind = kTaskEnvelope, .header = fed::header_of(task), .payload_digest = std::string(64, 'a')});
  EXPECT_EQ(answer.kind, kLackingEnvelope);
  EXPECT_EQ(answer.audit, fed::AuditLog(options.folder / fed::kAuditFile).head());
}

TEST_F(OfferOfOwnRows, ScoresNameThePayloadThatTheNodeHasAndANodeWithoutItGetsItAgain) {
  change_ = [&](int64_t, NodeClientOptions& options) {
    options.data = {own_rows(folder_.path())};
    options.limits.min_test_rows = 1;
  };
  auto request = request_of_own_rows();
  for (const auto* setting : {"train.rounds=1", "clients.assign=arrival"}) request.settings.emplace_back(setting);
  int64_t scores = 0;
  const Edit forget = [&](Envelope& envelope) {
    if (envelope.header.find("\"scored\"") == std::string::npos || ++scores != 2) return;
    envelope = {.run = envelope.run, .kind = kLackingEnvelope, .header = "{}"};
  };
  served(request, {{0, forget}}, 1);
  std::vector<int64_t> sent;
  const auto found = fed::read_audit(folder_.path() / "run" / "federation" / fed::kAuditFile, [&](const auto& line) {
    const auto& event = line.event;
    if (event.kind == fed::AuditKind::kTask && event.work == fed::AuditWork::kScore)
      sent.push_back(event.bytes_down.value());
    EXPECT_NE(event.kind, fed::AuditKind::kLost) << event.outcome;
  });
  EXPECT_FALSE(found.fault);
  ASSERT_GE(sent.size(), 4u);
  EXPECT_EQ(static_cast<int64_t>(sent.size()), scores);
  constexpr int64_t kHeader = 1000;
  EXPECT_GT(sent[0], 10 * kHeader) << "the first score brings the payload";
  EXPECT_LT(sent[1], kHeader) << "the next names it";
  EXPECT_GT(sent[2], 10 * kHeader) << "and brings it to a node that lacks it";
  for (size_t i = 3; i < sent.size(); ++i) EXPECT_LT(sent[i], kHeader) << i;
}

}  // namespace
}  // namespace evenkeel::flower
