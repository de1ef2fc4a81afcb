// `evenkeel privacy`: what releases with noise cost, before a run is begun, and what an account has spent.
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "apps/commands.h"
#include "apps/privacy_audit.h"
#include "base/plain/error.h"
#include "base/plain/json.h"
#include "base/plain/number_text.h"
#include "privacy/accountant.h"
#include "privacy/limits.h"
#include "privacy/loss_distribution.h"
#include "privacy/signal.h"

namespace evenkeel::apps {
namespace {

struct PrivacyFlags {
  std::string run;
  std::optional<double> delta, epsilon, noise, sampling;
  std::optional<int64_t> releases, rows, lot, clients, values;
  bool json = false;
};

/// A complete plan: releases of one kind, and what they cost.
struct Plan {
  privacy::Event event;
  int64_t releases = 0;
  privacy::Spent spent;
  std::optional<double> loss_distribution{}, signal_bound{};
};

template <typename T>
bool among(const std::optional<T>& value, T least, T most) {
  return !value || (*value >= least && *value <= most);
}

void check_flags(const PrivacyFlags& flags) {
  constexpr int64_t kMost = privacy::kMostReleases;
  EK_CHECK(flags.delta, kConfig, "--delta is required");
  const int given = flags.epsilon.has_value() + flags.noise.has_value() + flags.releases.has_value();
  EK_CHECK(given == 2, kConfig, "privacy: ", given,
           " of --epsilon, --noise and --releases are given, expected two: ", "the third is computed");
  EK_CHECK(flags.rows.has_value() == flags.lot.has_value(), kConfig, "privacy: --rows and --lot go together");
  EK_CHECK(!flags.sampling || !flags.rows, kConfig, "privacy: --sampling is --lot divided by --rows: give one of both");
  EK_CHECK(flags.clients.has_value() == flags.values.has_value(), kConfig,
           "privacy: --clients and --values go together");
  EK_CHECK(among<int64_t>(flags.releases, 1, kMost), kConfig, "--releases is ", *flags.releases, ", allowed: 1 to ",
           kMost);
  EK_CHECK(among<int64_t>(flags.rows, 1, kMost), kConfig, "--rows is ", *flags.rows, ", allowed: 1 to ", kMost);
  EK_CHECK(!flags.lot || among<int64_t>(flags.lot, 1, *flags.rows), kConfig, "--lot is ", *flags.lot,
           ", allowed: 1 to the number of rows, ", *flags.rows);
  EK_CHECK(among<int64_t>(flags.clients, 1, kMost), kConfig, "--clients is ", *flags.clients, ", allowed: 1 to ",
           kMost);
  EK_CHECK(among<int64_t>(flags.values, 1, kMost), kConfig, "--values is ", *flags.values, ", allowed: 1 to ", kMost);
}

double sampling_of(const PrivacyFlags& flags) {
  if (flags.rows) return static_cast<double>(*flags.lot) / static_cast<double>(*flags.rows);
  return flags.sampling.value_or(1);
}

/// Returns how many releases fit. \throws kConfig when not even one does, or more than can be counted
int64_t most_releases(const privacy::Event& event, const privacy::Budget& budget) {
  const int64_t most = privacy::Accountant().remaining(event, budget, privacy::kMostReleases);
  EK_CHECK(most > 0, kConfig, "privacy: not one release with noise multiplier ", event.noise, " fits into epsilon ",
           budget.epsilon, " at delta ", budget.delta);
  EK_CHECK(most < privacy::kMostReleases, kConfig, "privacy: more than ", most,
           " releases fit: the noise is far more than the budget needs");
  return most;
}

Plan plan_of(const PrivacyFlags& flags) {
  const privacy::Budget budget{flags.epsilon.value_or(1), *flags.delta};
  check_budget(budget, "privacy");
  Plan plan{.event = {.noise = flags.noise.value_or(1), .sampling = sampling_of(flags)}, .spent = {}};
  check_event(plan.event, "privacy");
  if (!flags.noise) plan.event.noise = privacy::least_noise(plan.event.sampling, *flags.releases, budget);
  plan.releases = flags.releases ? *flags.releases : most_releases(plan.event, budget);
  privacy::Accountant accountant;
  accountant.add(plan.event, plan.releases);
  plan.spent = accountant.spent(*flags.delta);
  const privacy::Releases all{plan.event, plan.releases};
  plan.loss_distribution = privacy::loss_distribution_epsilon(std::span(&all, 1), *flags.delta);
  if (plan.loss_distribution && !std::isfinite(*plan.loss_distribution)) plan.loss_distribution.reset();
  if (flags.clients)
    plan.signal_bound =
        static_cast<double>(*flags.clients) / (plan.event.noise * std::sqrt(static_cast<double>(*flags.values)));
  EK_CHECK(std::isfinite(plan.spent.epsilon), kConfig, "privacy: these releases have no finite epsilon");
  return plan;
}

OrderedJson json_of(const Plan& plan, double delta) {
  OrderedJson json{{"noise", plan.event.noise},
                   {"sampling", plan.event.sampling},
                   {"releases", plan.releases},
                   {"epsilon", plan.spent.epsilon},
                   {"delta", delta},
                   {"order", plan.spent.order},
                   {"epsilon_loss_distribution", nullptr},
                   {"signal_bound", nullptr}};
  if (plan.loss_distribution) json["epsilon_loss_distribution"] = *plan.loss_distribution;
  if (plan.signal_bound) json["signal_bound"] = *plan.signal_bound;
  return json;
}

std::string four_digits(double value) {
  std::ostringstream text;
  text.precision(4);
  text << value;
  return text.str();
}

/// Says what the largest possible signal is beside the noise.
std::string signal_text(double bound) {
  const auto ratio = concat("signal        at most ", four_digits(bound), " times the noise of the sum");
  return bound < privacy::kMostlyNoise ? concat(ratio, ": expect no learning\n") : concat(ratio, '\n');
}

std::string text_of(const Plan& plan, double delta) {
  auto text = concat("noise         multiplier ", fixed(plan.event.noise, 5), '\n',  //
                     "sampling      ", four_digits(plan.event.sampling),
                     plan.event.sampling == 1 ? " (all members in each release)\n" : " (Poisson, in secret)\n",
                     "releases      ", plan.releases, '\n',  //
                     "epsilon       ", fixed(plan.spent.epsilon, 4), " at delta ", delta, " (Renyi, order ",
                     plan.spent.order, "; a budget is checked with it)\n");
  if (plan.loss_distribution)
    text += concat("              ", fixed(*plan.loss_distribution, 4),
                   " by the loss distribution of the continuous Gaussian (for comparison)\n");
  if (plan.signal_bound) text += signal_text(*plan.signal_bound);
  return text;
}

void print_audit(const PrivacyFlags& flags) {
  const bool plans = flags.epsilon || flags.noise || flags.sampling || flags.releases || flags.rows || flags.lot ||
                     flags.clients || flags.values;
  EK_CHECK(!plans, kConfig, "privacy: --run audits an account and goes with --delta and --json alone");
  const auto audit = audit_privacy(flags.run, flags.delta);
  if (flags.json)
    std::cout << json_of(audit).dump() << '\n';
  else
    std::cout << text_of(audit);
}

void print_plan(const PrivacyFlags& flags) {
  check_flags(flags);
  const auto plan = plan_of(flags);
  if (flags.json)
    std::cout << json_of(plan, *flags.delta).dump() << '\n';
  else
    std::cout << text_of(plan, *flags.delta);
}

void run_privacy(const PrivacyFlags& flags) {
  flags.run.empty() ? print_plan(flags) : print_audit(flags);
  std::cout << std::flush;
}

void add_flags(CLI::App& command, PrivacyFlags& flags) {
  command.add_option("--run", flags.run,
                     "audit an account: a run folder with [privacy] unit = \"client\", or the memory folder of a "
                     "private node");
  command.add_option("--delta", flags.delta,
                     "probability with which the guarantee may fail; below 1 / members (--run: default of its plan)");
  command.add_option("--epsilon", flags.epsilon, "the budget");
  command.add_option("--noise", flags.noise, "standard deviation of the noise divided by the clip bound");
  command.add_option("--releases", flags.releases, "number of noisy sums: rounds, or steps of a node over all rounds");
  command.add_option("--sampling", flags.sampling,
                     "probability with which a member takes part in a release, drawn in secret (default: 1)");
  command.add_option("--rows", flags.rows, "rows of a node, with --lot in the place of --sampling");
  command.add_option("--lot", flags.lot, "expected number of rows per step");
  command.add_option("--clients", flags.clients, "number of members of a sum, with --values: adds the largest signal");
  command.add_option("--values", flags.values, "number of trained values");
  command.add_flag("--json", flags.json, "one JSON object");
}

}  // namespace

void add_privacy_command(CLI::App& program) {
  auto flags = std::make_shared<PrivacyFlags>();
  auto* command = program.add_subcommand(
      "privacy", "plans differential privacy (noise, budget or number of releases), or audits an account");
  command->footer(
      "Example: evenkeel privacy --epsilon 8 --delta 1e-5 --releases 1000 --rows 2000 --lot 64\n"
      "         evenkeel privacy --noise 1 --delta 1e-6 --releases 40 --clients 50 --values 1250000\n"
      "         evenkeel privacy --run runs/private\n\n"
      "Of --epsilon, --noise and --releases, two are given and the third is computed: the least noise for a budget, "
      "the "
      "cost of a noise, or the number of releases that a budget allows.");
  add_flags(*command, *flags);
  command->callback([flags] { run_privacy(*flags); });
}

}  // namespace evenkeel::apps
