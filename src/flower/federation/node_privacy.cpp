#include "flower/federation/node_privacy.h"

#include <ATen/ATen.h>
#include <ATen/Version.h>

#include "base/plain/files.h"
#include "base/plain/number_text.h"
#include "base/system/device.h"
#include "crypto/hkdf.h"
#include "flower/federation/agreed_run.h"
#include "privacy/limits.h"

namespace evenkeel::flower {
namespace {

constexpr const char* kFolder = "privacy";

void check_options(const NodePrivacyOptions& options) {
  privacy::check_budget({.epsilon = options.epsilon, .delta = options.delta}, "--privacy-epsilon and --privacy-delta");
  limits::check_above_zero("--privacy-clip", options.clip);
  limits::check_integer("--privacy-lot", options.lot, 0, limits::kRows);
  if (options.noise != 0) privacy::check_event({.noise = options.noise}, "--privacy-noise");
}

std::string digest_of(const TensorMap& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    const auto whole = tensor.contiguous();
    text += concat(name, ' ', sha256({static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()}), '\n');
  }
  return sha256(text);
}

/// Returns true if a plan was made with these options.
bool is_of(const privacy::Plan& plan, const privacy::Plan& asked, double noise) {
  return plan.epsilon == asked.epsilon && plan.delta == asked.delta && plan.clip == asked.clip &&
         plan.sampling == asked.sampling && (noise == 0 || plan.noise == noise);
}

}  // namespace

std::shared_ptr<privacy::Ledger> open_ledger(const NodeClientOptions& options) {
  const auto& own = options.privacy;
  const auto folder = options.folder / kFolder;
  if (!own.is_on()) {
    EK_CHECK(options.folder.empty() || !privacy::Ledger::exists(folder), kConfig,
             "this node was private for its rows (", folder.string(),
             " has its account): start it with --privacy-epsilon, --privacy-delta and --privacy-clip, "
             "or with another --memory if its rows need no privacy any more");
    return nullptr;
  }
  check_options(own);
  EK_CHECK(!options.folder.empty(), kInternal, "no folder to keep the privacy ledger in");
  return std::make_shared<privacy::Ledger>(folder);
}

void require_can_be_private(const fed::RunConfig& config) {
  methods::require_rows_by_gradients(config->method.entry());
  EK_CHECK(
      config->train.idle_expert_update == train::IdleExpertUpdate::kZeroGrad, kConfig,
      "train.idle_expert_update is \"skip\", which depends on rows otherwise than by gradients: this node is private "
      "for its rows and needs zero_grad");
}

NodePrivacy::NodePrivacy(std::shared_ptr<privacy::Ledger> ledger, const NodePrivacyOptions& options, PrivateRun run,
                         const fed::SharedState& shared)
    : ledger_(std::move(ledger)), run_(std::move(run)), shared_(shared) {
  const auto& train = run_.config->train;
  lot_ = options.lot > 0 ? options.lot : train.rows_of_step();
  EK_CHECK(lot_ <= run_.rows, kConfig, "a private step would draw ", lot_, " of ", run_.rows,
           " rows: --privacy-lot has to be smaller, or the rows more");
  plan_ = {.run = run_.run,
           .epsilon = options.epsilon,
           .delta = options.delta,
           .clip = options.clip,
           .sampling = static_cast<double>(lot_) / static_cast<double>(run_.rows)};
  const auto known = ledger_->plan_of(run_.run);
  if (known && is_of(*known, plan_, options.noise)) {
    plan_.noise = known->noise;
    return;
  }
  const int64_t steps = train.rounds * train::local_steps(train, run_.rows);
  plan_.noise =
      options.noise > 0 ? options.noise : privacy::least_noise(plan_.sampling, steps, budget(), ledger_->account());
  ledger_->add(plan_);
}

std::string NodePrivacy::summary() const {
  return concat("private for single rows, also towards the server: epsilon up to ", plan_.epsilon, " at delta ",
                plan_.delta, " (", fixed(ledger_->account().spent(plan_.delta).epsilon, 3),
                " spent before), noise multiplier ", fixed(plan_.noise, 4), ", clip ", plan_.clip, ", ", lot_, " of ",
                run_.rows, " rows per step; losses, tokens, expert counts and times are withheld");
}

/// Whatever changes an upload has to change this digest: equal noise must never meet other gradients. On a GPU, equal
/// tasks give gradients that differ in their last bits, so each gets noise of its own.
std::string NodePrivacy::digest_of(const fed::Task& task, const fed::PrivateRound& round) const {
  const auto& content = run_.content;
  const auto own = names_gpu(run_.config->model.device) ? crypto::Secret::random() : crypto::Secret();
  return sha256(concat(version(), '\n', at::get_cpu_capability(), '\n', run_.run, '\n', run_.config->text(), '\n',
                       content.rows, '\n', content.base, '\n', content.tokenizer, '\n', plan_.noise, ' ', plan_.clip,
                       ' ', lot_, ' ', round.rows, ' ', round.steps, '\n', flower::digest_of(round.memory), '\n',
                       request_digest(task, shared_.common()), '\n', own.view()));
}

void NodePrivacy::charge(const std::string& digest, const fed::Task& task, int64_t steps) {
  if (ledger_->holds(digest)) return;
  const auto& account = ledger_->account();
  EK_CHECK(!account.would_exceed(event(), steps, budget()), kConfig,
           "the privacy budget of this node is spent: epsilon ", fixed(account.spent(plan_.delta).epsilon, 3), " of ",
           plan_.epsilon, " at delta ", plan_.delta, ", and one more round would exceed it");
  ledger_->add(privacy::Release{.run = run_.run,
                                .round = task.round + 1,
                                .noise = plan_.noise,
                                .sampling = plan_.sampling,
                                .times = steps,
                                .clip = plan_.clip,
                                .digest = digest},
               plan_.delta);
}

train::PrivateSteps NodePrivacy::begin(const fed::Task& task, const fed::PrivateRound& round) {
  const auto digest = digest_of(task, round);
  charge(digest, task, round.steps);
  std::string info = "evenkeel dp round 1";
  info += '\0';
  info += digest;
  return {.draws = privacy::ExampleDraws(crypto::hkdf_expand(ledger_->key(), info)),
          .report = {.noise = plan_.noise,
                     .clip = plan_.clip,
                     .sampling = plan_.sampling,
                     .epsilon = ledger_->account().spent(plan_.delta).epsilon,
                     .delta = plan_.delta,
                     .withheld = true},
          .lot = static_cast<double>(lot_)};
}

}  // namespace evenkeel::flower
