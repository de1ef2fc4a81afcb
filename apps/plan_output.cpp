#include "apps/plan_output.h"

#include <array>
#include <cstdio>
#include <iostream>

#include "base/plain/error.h"

namespace evenkeel::apps {
namespace {

void print_line(int64_t bytes, const std::string& what) {
  std::cout << fixed(static_cast<double>(bytes) / kGiB, 2, 8) << "  " << what << '\n';
}

void print_sum(const std::string& what, const models::MemoryPlan& plan) {
  std::cout << "\n" << what << " at the worst moment of the run, GiB\n";
  for (const auto& part : plan.parts) print_line(part.bytes, part.what);
  print_line(plan.needed(), "in all");
}

void print_mapped(const models::MemoryPlan& plan) {
  if (plan.mapped > 0) print_line(plan.mapped, "of mapped files besides, whose pages can be dropped and read again");
}

}  // namespace

std::string fixed(double value, int decimals, int width) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%*.*f", width, decimals, value);
  return text.data();
}

void print_parts(const std::string& what, const models::MemoryPlan& plan) {
  print_sum(what, plan);
  print_mapped(plan);
}

void print_plan(const std::string& what, const models::MemoryPlan& plan, const machine::Memory& memory) {
  print_sum(what, plan);
  print_line(memory.available, concat("available (", memory.limited_by, ")"));
  print_mapped(plan);
  constexpr std::array kVerdicts{"fits", "fits, with little to spare", "does not fit"};
  std::cout << kVerdicts.at(static_cast<size_t>(models::verdict(plan, memory))) << ": the run "
            << models::memory_report(plan, memory) << '\n';
}

}  // namespace evenkeel::apps
