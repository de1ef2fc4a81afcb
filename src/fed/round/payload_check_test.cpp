#include "fed/round/payload_check.h"

#include "fed/round/starting_gradients.h"
#include "fed/testing.h"
#include "lora/peft.h"

namespace evenkeel::fed {
namespace {

using testing::refusal;

class PayloadCheck : public testing::SmallRun {
 protected:
  /// The reply of client 1 to the first round, as a node sends it.
  static Reply reply_of(Experiment& e, const methods::ServerState& state) {
    const auto round = e.server.draw(state);
    std::optional<Reply> reply;
    e.fabric.exchange(std::span(&e.server.clients[1], 1),
                      {.task_of = [&](const auto& client) { return e.server.training_task(state, client, round); },
                       .on_reply = [&](Reply made) { reply = std::move(made); }});
    return reply.value();
  }
};

TEST_F(PayloadCheck, RepliesOfEveryMethodAreAccepted) {
  std::vector<std::pair<std::string_view, std::string_view>> runs = {
      {"a3smoe", "method.a3smoe.rescaler=learn"}, {"ub-smoe", "method.ub-smoe.phi_train=local_fedavg"}};
  for (const auto& entry : methods::methods())
    for (const auto* transport : {"train.transport_dtype=float32", "train.transport_dtype=bfloat16"})
      runs.emplace_back(entry.name, transport);
  for (const auto& [method, setting] : runs) {
    auto e = experiment(method, Purpose::kTrain, setting);
    const auto begun = beginning(e);
    const auto reply = reply_of(e, begun.state);
    EXPECT_EQ(refusal([&] { check_training_reply(e.server, begun.state, e.server.clients[1], reply); }), "no error")
        << method << ' ' << setting;
  }
}

// The smaller side of a weight of the small model is 24 at most.
TEST_F(PayloadCheck, AnAdapterOfAnyRankToBeginWithIsAChangeOfTheBaseThatNodesTake) {
  const auto bare = experiment("flora");
  for (const int64_t rank : {10, 30}) {
    auto start = lora::make_adapters(bare.server.sites, rank, 0.5, 5);
    at::manual_seed(5);
    for (auto& [site, factors] : start) factors.b = at::randn_like(factors.b);
    const auto folder = root() / concat("start-", rank);
    lora::save_peft_adapter(folder, start, bare.server.all_sites, {});
    for (const auto* method : {"flora", "florist"}) {
      auto e = experiment(method, Purpose::kTrain, concat("lora.init=\"", folder.string(), "\""));
      const auto news = e.server.full_sync(beginning(e).state);
      EXPECT_EQ(refusal([&] {
                  check_download(lora::decode(news.payload.bytes, "news"), e.server.sites, news_terms(e.server, 0),
                                 "news");
                }),
                "no error")
          << method << ", rank " << rank;
    }
  }
}

struct Change {
  std::string_view said;
  std::function<void(train::LocalReport&)> change;
};

const std::vector<Change>& changes() {
  using Report = train::LocalReport;
  static const std::vector<Change> all = {
      {"a loss of 1.7e+308", [](Report& r) { r.loss_sum = 1.7e308; }},
      {"a loss of 1e+07", [](Report& r) { r.first_loss = 1e7; }},
      {"over 0 targets", [](Report& r) { r.targets = 0; }},
      {"a loss of 1.7e+308", [](Report& r) { r.last_loss = 1.7e308; }},
      {"a loss of -1", [](Report& r) { r.last_loss = -1; }},
      {"a loss of nan", [](Report& r) { r.last_loss = NAN; }},
      {"a time of 1.7e+308", [](Report& r) { r.seconds = 1.7e308; }},
      {"a time of 4.94066e-324", [](Report& r) { r.seconds = 5e-324, r.step_seconds = 0; }},
      {"a time of -1", [](Report& r) { r.step_seconds = -1; }},
      {"a time of 1e+308", [](Report& r) { r.move_seconds = 1e308; }},
      {"s of training", [](Report& r) { r.step_seconds = r.seconds + 1; }},
      {"s of training", [](Report& r) { r.move_seconds = r.seconds; }},
      {"idle_share is 1.7e+308", [](Report& r) { r.metrics["idle_share"] = 1.7e308; }},
      {"idle_share is nan", [](Report& r) { r.metrics["idle_share"] = NAN; }},
      {"pg_share is -1e+99", [](Report& r) { r.metrics["pg_share"] = -1e99; }},
      {"pg_share is 1.01, allowed: 0 to 1", [](Report& r) { r.metrics["pg_share"] = 1.01; }},
      {"pg_norm is -1", [](Report& r) { r.metrics["pg_norm"] = -1; }},
      {"pg_norm is 1e+200", [](Report& r) { r.metrics["pg_norm"] = 1e200; }},
      {"x is no metric of the method", [](Report& r) { r.metrics["x"] = 1; }},
      {"load_balance_loss is no metric", [](Report& r) { r.metrics["load_balance_loss"] = 1; }},
      {"\\n<script> is no metric", [](Report& r) { r.metrics["\n<script>"] = 1; }},
      {"add up to", [](Report& r) { r.counts.begin()->second.counts[0] += 1; }},
      {"targets in", [](Report& r) { r.targets = r.tokens + 1; }},
      {"differ between upload and report",
       [](Report& r) {
         auto& counts = r.counts.begin()->second.counts;
         const auto from = counts.argmax().item<int64_t>(), to = counts.argmin().item<int64_t>();
         counts[from] -= 1, counts[to] += 1;
       }},
      {"are of 0 tokens", [](Report& r) { r.counts.begin()->second.tokens = 0; }},
      {"are of 9223372036854775807 tokens", [](Report& r) { r.counts.begin()->second.tokens = INT64_MAX; }},
      {"are not 7 numbers of 0 to", [](Report& r) { r.counts.begin()->second.counts.fill_(INT64_MAX); }},
      {"are not 7 numbers of 0 to", [](Report& r) { r.counts.begin()->second.counts = at::ones({6}, at::kLong); }},
  };
  return all;
}

TEST_F(PayloadCheck, NumbersWhoseSumsWouldOverflowAreRefused) {
  auto e = experiment("ub-smoe");
  const auto begun = beginning(e);
  const auto good = reply_of(e, begun.state);
  const auto said = [&](const Reply& reply) {
    return refusal([&] { check_training_reply(e.server, begun.state, e.server.clients[1], reply); });
  };
  EXPECT_EQ(said(good), "no error");
  for (const auto& [words, change] : changes()) {
    auto bad = good;
    auto& report = std::get<train::LocalReport>(bad.report);
    for (auto& [layer, stats] : report.counts) stats.counts = stats.counts.clone();
    change(report);
    EXPECT_NE(said(bad).find(words), std::string::npos) << words << " in: " << said(bad);
  }
}

TEST_F(PayloadCheck, AWithheldReportHasItsStepsAlone) {
  auto e = experiment("fedit", Purpose::kTrain, "seed=5");
  const auto begun = beginning(e);
  const auto told = reply_of(e, begun.state);
  train::LocalReport bare;
  bare.steps = report_of<train::LocalReport>(told).steps;
  bare.privacy =
      train::PrivateReport{.noise = 1, .clip = 0.1, .sampling = 0.1, .epsilon = 2, .delta = 1e-5, .withheld = true};
  const std::vector<Change> all = {
      {"no error", [](train::LocalReport&) {}},
      {"steps, expected", [](train::LocalReport& r) { r.steps += 1; }},
      {"more of it than its steps", [](train::LocalReport& r) { r.tokens = 7; }},
      {"more of it than its steps", [](train::LocalReport& r) { r.loss_sum = 1; }},
      {"more of it than its steps", [](train::LocalReport& r) { r.metrics["x"] = 1; }},
      {"more of it than its steps", [](train::LocalReport& r) { r.seconds = 1; }},
      {"privacy.epsilon is 1e+300", [](train::LocalReport& r) { r.privacy->epsilon = 1e300; }},
      {"privacy.signal is nan", [](train::LocalReport& r) { r.privacy->signal = NAN; }},
      {"privacy.sampling is 2", [](train::LocalReport& r) { r.privacy->sampling = 2; }},
      {"targets", [](train::LocalReport& r) { r.privacy.reset(), r.targets = 1; }},
  };
  for (const auto& [said, change] : all) {
    auto reply = told;
    auto report = bare;
    change(report);
    reply.report = report;
    const auto error = refusal([&] { check_training_reply(e.server, begun.state, e.server.clients[1], reply); });
    EXPECT_NE(error.find(said), error.npos) << said << ": " << error;
  }
}

TEST_F(PayloadCheck, AReportThatTheMethodNeedsIsNotWithheld) {
  auto e = experiment("ub-smoe", Purpose::kTrain, "seed=5");
  const auto begun = beginning(e);
  auto reply = reply_of(e, begun.state);
  train::LocalReport bare;
  bare.steps = report_of<train::LocalReport>(reply).steps;
  bare.privacy = train::PrivateReport{.noise = 1, .withheld = true};
  reply.report = bare;
  const auto error = refusal([&] { check_training_reply(e.server, begun.state, e.server.clients[1], reply); });
  EXPECT_NE(error.find("which clients of method ub-smoe cannot"), error.npos) << error;
}

TEST_F(PayloadCheck, BytesByContentAddUpToTheUpload) {
  auto e = experiment("ub-smoe");
  const auto begun = beginning(e);
  const auto good = reply_of(e, begun.state);
  const auto said = [&](const std::function<void(std::map<std::string, int64_t>&)>& change) {
    auto bad = good;
    change(std::get<lora::EncodedPayload>(bad.upload).parts);
    return refusal([&] { check_training_reply(e.server, begun.state, e.server.clients[1], bad); });
  };
  EXPECT_EQ(said([](auto&) {}), "no error");
  EXPECT_NE(said([](auto& parts) { parts["adapters"] = INT64_MAX; }).find("9223372036854775807 bytes of adapters"),
            std::string::npos);
  EXPECT_NE(said([](auto& parts) { parts["adapters"] -= 1; }).find("leave out 1 "), std::string::npos);
  EXPECT_NE(said([](auto& parts) { parts["mine"] = 0; }).find("bytes of mine"), std::string::npos);
  EXPECT_NE(said([](auto& parts) { parts.clear(); }).find("leave out"), std::string::npos);
}

TEST_F(PayloadCheck, UploadsOfValuesWhoseProductsWouldOverflowAreRefused) {
  auto e = experiment("ub-smoe");
  const auto begun = beginning(e);
  const auto good = reply_of(e, begun.state);
  const auto said = [&](const std::function<void(lora::Payload&)>& change) {
    auto bad = good;
    auto& upload = std::get<lora::EncodedPayload>(bad.upload);
    auto payload = lora::received(lora::decode(upload.bytes, "a test"));
    for (auto& [name, f] : payload.adapters) f.a = f.a.clone();
    change(payload);
    upload = lora::encode(payload, lora::TransportDtype::kAsTheyAre, e.server.sites);
    return refusal([&] { check_training_reply(e.server, begun.state, e.server.clients[1], bad); });
  };
  const auto first = [](lora::Payload& payload) -> lora::LoraFactors& { return payload.adapters.begin()->second; };
  EXPECT_EQ(said([](auto&) {}), "no error");
  EXPECT_EQ(said([&](auto& payload) { first(payload).a.fill_(9e5); }), "no error");
  EXPECT_NE(said([&](auto& payload) { first(payload).a.fill_(-3e38); }).find("of magnitude 3e+38"), std::string::npos);
  EXPECT_NE(said([&](auto& payload) {
              first(payload).a = first(payload).a.to(at::kDouble).fill_(1e300);
            }).find("of magnitude 1e+300"),
            std::string::npos);
  EXPECT_NE(said([&](auto& payload) { first(payload).a.fill_(NAN); }).find("not finite"), std::string::npos);
  EXPECT_NE(said([&](auto& payload) { first(payload).scaling = 1e300; }).find("scaling"), std::string::npos);
  const auto none_chosen = [](auto& payload) {
    for (auto& [name, tensor] : payload.extras)
      if (name.ends_with(".counts") || name.ends_with(".tokens")) tensor = at::zeros_like(tensor);
  };
  EXPECT_NE(said(none_chosen).find("by 0 tokens"), std::string::npos);
}

/// Asks the server's check about replies whose gradients all have one value.
class OfOneValue : public Fabric {
 public:
  OfOneValue(Fabric& fabric, double value) : fabric_(fabric), value_(value) {}
  void announce(std::span<const methods::ClientProfile> to, const StateUpdate& news) override {
    fabric_.announce(to, news);
  }
  void exchange(std::span<const methods::ClientProfile> to, const Exchange& exchange) override {
    auto changed = exchange;
    changed.on_reply = [&](const Reply& reply) {
      auto payload = lora::decode(encoded_payload(reply.upload)->bytes, "a test");
      for (auto& [name, tensor] : payload.extras) tensor = at::full_like(tensor, value_);
      Reply bad = reply;
      bad.upload = lora::encode(payload, lora::TransportDtype::kAsTheyAre, {});
      said = refusal([&] { exchange.check({.id = reply.client}, bad); });
      exchange.on_reply(reply);
    };
    fabric_.exchange(to, changed);
  }
  std::string said{};

 private:
  Fabric& fabric_;
  double value_;
};

TEST_F(PayloadCheck, GradientsWhoseSumWouldOverflowAreRefused) {
  auto e = experiment("fed-sb");
  const auto said = [&](double value) {
    OfOneValue fabric(e.fabric, value);
    int64_t bytes_up = 0;
    StartingGradients(e.server, fabric, bytes_up)("model.layers.0.self_attn.q_proj",
                                                  {.rows = 2, .from = methods::SampleFrom::kClients});
    return fabric.said;
  };
  for (const double value : {0.0, -9e17, 9e17}) EXPECT_EQ(said(value), "no error");
  for (const double value : {2e18, -3e38, double{HUGE_VAL}, double{NAN}})
    EXPECT_NE(said(value).find("expected finite numbers up to 1e+18"), std::string::npos) << said(value);
}

}  // namespace
}  // namespace evenkeel::fed
