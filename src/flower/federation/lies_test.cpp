// Tests of what a server does with nodes that lie: the liar is lost for the round, and nobody else is.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fed/round/testing.h"
#include "flower/federation/federation_testing.h"

namespace evenkeel::flower {
namespace {

struct Lie {
  const char* name;
  Edit edit;
  const char* said;
  const char* setting = "threads=1";
};

const std::vector<Lie>& lies() {
  static const std::vector<Lie> all = {
      {"NotANumber",
       [](Envelope& envelope) {
         change_upload(envelope, [](lora::Payload& p) { p.adapters.begin()->second.a.fill_(std::nan("")); });
       },
       "not finite"},
      {"AHigherRank",
       [](Envelope& envelope) {
         change_upload(envelope, [](lora::Payload& p) {
           auto& f = p.adapters.begin()->second;
           f.a = at::cat({f.a, f.a}, -2), f.b = at::cat({f.b, f.b}, -1);
         });
       },
       "is of rank"},
      {"ASiteLess",
       [](Envelope& envelope) {
         change_upload(envelope, [](lora::Payload& p) { p.adapters.erase(p.adapters.begin()); });
       },
       "is missing"},
      {"ASiteMore",
       [](Envelope& envelope) {
         change_upload(envelope,
                       [](lora::Payload& p) { p.adapters["model.layers.9.mlp.gate"] = p.adapters.begin()->second; });
       },
       "was not to be sent"},
      {"CountsThatDoNotAddUp",
       [](Envelope& envelope) {
         change_upload(envelope, [](lora::Payload& p) {
           for (auto& [name, tensor] : p.extras)
             if (name.ends_with(".counts")) tensor = tensor + 1;
         });
       },
       "were chosen"},
      {"AChangeOfTheBase",
       [](Envelope& envelope) { change_upload(envelope, [](lora::Payload& p) { p.base_delta = p.adapters; }); },
       "the server's to make"},
      {"AnUpdateOfAnotherScale",
       [](Envelope& envelope) {
         change_upload(envelope, [](lora::Payload& p) {
           for (auto& [name, f] : p.adapters) f.b.mul_(1e6);
         });
       },
       "clients.update_norm allows 1000", "clients.update_norm=1000"},
      {"MoreSteps",
       [](Envelope& envelope) { change_report(envelope, [](OrderedJson& report) { report["steps"] = 1000; }); },
       "1000 steps"},
      {"ATimeWhoseSumIsInfinite",
       [](Envelope& envelope) { change_report(envelope, [](OrderedJson& report) { report["seconds"] = 1.7e308; }); },
       "a time of 1.7e+308 s"},
      {"ExpertsThatNoTokenChose",
       [](Envelope& envelope) {
         change_report(envelope, [](OrderedJson& report) { report["counts"].begin().value()["tokens"] = 0; });
       },
       "are of 0 tokens"},
      {"MoreBytesThanItSends",
       [](Envelope& envelope) {
         if (envelope.kind != kReplyEnvelope) return;
         auto json = OrderedJson::parse(envelope.header);
         json["parts"]["adapters"] = INT64_MAX;
         envelope.header = json.dump();
       },
       "bytes of adapters"},
      {"AnotherClientsReply",
       [](Envelope& envelope) {
         if (envelope.kind != kReplyEnvelope) return;
         auto json = OrderedJson::parse(envelope.header);
         json["client"] = json["client"].get<int>() == 0 ? 1 : 0;
         envelope.header = json.dump();
       },
       "sends no reply of client"},
      {"AShutdownInPlaceOfAReply",
       [](Envelope& envelope) {
         if (envelope.kind == kReplyEnvelope) envelope = {envelope.run, kShutdownEnvelope, "{}"};
       },
       "nobody asked"},
      {"AcknowledgementsInPlaceOfAReply",
       [](Envelope& envelope) {
         if (envelope.kind == kReplyEnvelope) envelope = {envelope.run, kAcknowledgedEnvelope, "{}"};
       },
       "no reply in"},
      {"AnEnvelopeOfNoKind",
       [](Envelope& envelope) {
         if (envelope.kind == kReplyEnvelope) envelope = {envelope.run, "", "{}"};
       },
       "sent no envelope"},
      {"NoJson",
       [](Envelope& envelope) {
         if (envelope.kind == kReplyEnvelope) envelope.header = "{";
       },
       "JSON"},
  };
  return all;
}

class Liar : public Federation, public ::testing::WithParamInterface<size_t> {};

TEST_P(Liar, IsLostAndNobodyElseIs) {
  const auto& lie = lies()[GetParam()];
  const auto out = folder_.path() / "run";
  served(request("ub-smoe", out, {"train.rounds=1", lie.setting}), {{1, lie.edit}});
  const auto record = rounds(out).at(0);
  ASSERT_TRUE(record.lost) << "nobody was lost";
  ASSERT_EQ(record.lost->size(), 1u);
  EXPECT_NE(record.lost->at(0).reason.find(lie.said), std::string::npos) << record.lost->at(0).reason;
  EXPECT_EQ(record.clients.size(), 2u);
}
INSTANTIATE_TEST_SUITE_P(Lies, Liar, ::testing::Range(size_t{0}, lies().size()),
                         [](const auto& info) { return std::string(lies()[info.param].name); });

class Poisoner : public Federation, public ::testing::WithParamInterface<const char*> {};

/// The default bound: a node with a ruinous update is left out, named in the records, and changes nothing else.
TEST_P(Poisoner, IsLeftOutAndTheRunHasTheBitsOfOneWithoutIt) {
  const std::string kind = GetParam();
  const testing::Poison poison = kind == "Large" ? testing::Poison(testing::large)
                                 : kind == "Constant"
                                     ? testing::Poison(testing::constant)
                                     : testing::Poison([](const at::Tensor& sent, const at::Tensor&) {
                                         return sent * -1000;  // in round 1 the update of B times -1000
                                       });
  const auto out = folder_.path() / "run";
  served(request("fedit", out), {{1, [&](Envelope& envelope) {
                                    change_upload(envelope,
                                                  [&](lora::Payload& p) { p = testing::poisoned(p, {}, poison); });
                                  }}});
  const auto records = rounds(out);
  ASSERT_EQ(records.size(), 2u);
  int64_t client = -1;
  for (const auto& record : records) {
    ASSERT_TRUE(record.lost && record.lost->size() == 1u);
    EXPECT_NE(record.lost->front().reason.find("clients.update_ratio allows 10 times"), std::string::npos);
    EXPECT_EQ(record.clients.size(), 2u);
    client = record.lost->front().id;
  }
  const auto audit = read_file(out / "federation" / fed::kAuditFile);
  EXPECT_NE(audit.find("left out: its update moves by"), std::string::npos) << audit;
  const auto alone = folder_.path() / "alone";
  auto run = fed::begin_run(request("fedit", alone, {"threads=1", "clients.bound_simulated=true"}));
  testing::PoisonedFabric fabric(run.experiment.fabric, run.experiment.server.sites, {client}, testing::large);
  fed::complete_run(run.experiment.server, fabric, run.folder);
  const auto* adapter = "adapter/adapter_model.safetensors";
  EXPECT_EQ(sha256_file(out / adapter), sha256_file(alone / adapter)) << "the others decide alone";
}
INSTANTIATE_TEST_SUITE_P(Poisons, Poisoner, ::testing::Values("Large", "Constant", "MinusOneThousandTimes"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace evenkeel::flower
