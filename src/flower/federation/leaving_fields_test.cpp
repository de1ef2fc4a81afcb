// Every field of every message that leaves a node is in a table of docs/threat-model.md, and every row of the table
// leaves a node in one of these settings.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "base/plain/files.h"
#include "flower/federation/node_testing.h"
#include "methods/method_registry.h"

namespace evenkeel::flower {
namespace {

using Fields = std::set<std::string>;

/// Returns the names in backquotes of a cell.
std::vector<std::string> names_in_backquotes(std::string_view cell) {
  std::vector<std::string> names;
  for (size_t at = cell.find('`'); at != cell.npos; at = cell.find('`', at + 1)) {
    const auto end = cell.find('`', at + 1);
    names.emplace_back(cell.substr(at + 1, end - at - 1));
    at = end;
  }
  return names;
}

/// Returns the fields of the table as "message field". Rows without a message are of the one above.
Fields fields_of_the_page() {
  const auto page = read_file(fs::path(EVENKEEL_SOURCE_DIR) / "docs/threat-model.md");
  const auto begin = page.find("<!-- fields -->"), end = page.find("<!-- end of fields -->");
  std::istringstream table(page.substr(begin, end - begin));
  std::vector<std::string> messages;
  Fields fields;
  for (std::string line; std::getline(table, line);) {
    if (!line.starts_with("| ") || line.starts_with("| ---") || line.starts_with("| message")) continue;
    const auto second = line.find('|', 1), third = line.find('|', second + 1);
    if (const auto names = names_in_backquotes(line.substr(0, second)); !names.empty()) messages = names;
    auto own = names_in_backquotes(line.substr(second, third - second));
    if (own.empty()) own.emplace_back("");
    for (const auto& message : messages)
      for (const auto& field : own) fields.insert(concat(message, ' ', field));
  }
  return fields;
}

/// Adds the fields of a JSON value. Names of layers, contents and metrics become "<layer>" and so on.
void add_fields(const Json& json, const std::string& path, const std::string& prefix, Fields& fields) {
  const auto name_for = [&](const std::string& key) -> std::string {
    if (path == "parts") return "<content>";
    if (path == "report.counts") return "<layer>";
    return path == "report.metrics" ? "<name>" : key;
  };
  if (!json.is_object()) {
    fields.insert(concat(prefix, path));
    return;
  }
  for (const auto& [key, value] : json.items())
    add_fields(value, concat(path, path.empty() ? "" : ".", name_for(key)), prefix, fields);
}

void add_arrays(const lora::Payload& payload, Fields& fields) {
  const auto add = [&](const lora::AdapterState& state, const std::string& kind) {
    for (const auto& [site, f] : state)
      for (const auto& [name, tensor] : {std::pair{"a", &f.a}, {"b", &f.b}, {"core", &f.core}})
        if (tensor->defined()) fields.insert(concat("reply ", kind, ".<site>.", name));
  };
  add(payload.adapters, "adapter");
  add(payload.base_delta, "base_delta");
  for (const auto& [name, tensor] : payload.extras) {
    const auto dot = name.rfind('.');
    fields.insert(concat("reply extra.", dot == name.npos ? name : name.substr(dot + 1)));
  }
}

/// A node whose every answer is looked at.
class LeavingFields : public NodeInRun {
 protected:
  void look_at(const Envelope& answer) {
    const auto header = Json::parse(answer.header);
    if (header.empty()) left_.insert(concat(answer.kind, ' '));
    add_fields(header, "", concat(answer.kind, ' '), left_);
    if (answer.payload_N.defined() && answer.payload_N.numel() > 0)
      add_arrays(lora::decode(answer.payload_N, "a reply"), left_);
  }
  std::string said_to(const Envelope& envelope) override {
    auto refused = NodeInRun::said_to(envelope);
    if (refused.empty())
      look_at(answer_);
    else
      left_.insert("error reason");
    return refused;
  }

  /// Joins a run of the method, trains a round and ends it.
  void train(std::string_view method, std::initializer_list<std::string> settings) {
    restart();
    run_ = concat("run", runs_++);
    join(settings, method);
    synchronise();
    EXPECT_EQ(asked(training()), "") << method;
    say(kShutdownEnvelope, "{}");
    say(kUpdateEnvelope, fed::header_of(fed::StateUpdate{.round = 0, .whole = true}));
  }
  /// Joins a run of UB-SMoE whose rows are scored so, and gives both scores of a budget.
  void score(const std::string& how, const std::string& options = "[]") {
    restart();
    options_.limits.items = true;
    run_ = concat("run", runs_++);
    join({concat("data.files.score=\"", how, "\""), concat("data.files.options=", options), "evaluate.items=true"},
         "ub-smoe");
    EXPECT_EQ(asked(scoring(2)), "") << how;
    auto exported = server().scoring_task(state_, {.budget = 1.0, .served_by = scoring::ServedBy::kTransformers},
                                          {.task = "files"});
    exported.client.id = 1;
    std::get<fed::Score>(exported.ask).own_rows = true;
    EXPECT_EQ(asked(exported), "") << how;
  }
  /// Joins a run of Fed-SB, gives the gradients that it begins with, and trains.
  void begin_with_gradients() {
    restart();
    run_ = "gradients";
    experiment_.emplace(server_of(config({"method.fed-sb.init=\"federated\"", "method.fed-sb.samples=8"}, "fed-sb")));
    ASSERT_EQ(offered(offer_of(*experiment_)), "");
    state_ = fed::first_state(server(), [&](const std::string& site, const methods::GradientSample& sample) {
      EXPECT_EQ(asked({.client = server().clients[1], .ask = fed::SumGradients{{site}, sample}}), "");
      return lora::decode(answer_.payload_N, "a reply").extras.begin()->second;
    });
    synchronise();
    EXPECT_EQ(asked(training()), "");
  }
  void say(const char* kind, const std::string& header) {
    EXPECT_EQ(said_to({.run = run_, .kind = kind, .header = header}), "") << kind;
  }

  Fields left_;
  int runs_ = 0;
};

TEST_F(LeavingFields, AreThoseOfTheThreatModel) {
  for (const auto& entry : methods::methods())
    if (!entry.asks_gradients) train(entry.name, {"threads=1"});
  train("a3smoe", {"method.a3smoe.rescaler=\"learn\""});
  train("ub-smoe", {"method.ub-smoe.phi_train=\"local_fedavg\""});
  score("choice", R"(["eyes", "surgery"])");
  score("f1");
  score("nll");
  EXPECT_NE(asked(scoring(1)), "") << "a refusal";
  options_.privacy = {.epsilon = 8, .delta = 1e-3, .clip = 0.1, .lot = 3};
  train("fedit", {});
  options_.privacy = {};
  const testing::TemporaryFolder without_account;
  options_.folder = without_account.path();
  begin_with_gradients();
  const auto page = fields_of_the_page();
  for (const auto& field : left_) EXPECT_TRUE(page.contains(field)) << "not in docs/threat-model.md: " << field;
  for (const auto& field : page) EXPECT_TRUE(left_.contains(field)) << "left no node: " << field;
}

}  // namespace
}  // namespace evenkeel::flower
