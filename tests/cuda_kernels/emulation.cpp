#include "fibers.h"

#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

namespace evenkeel::nn::cuda {
emulation::Index threadIdx, blockIdx, blockDim;
}  // namespace evenkeel::nn::cuda

namespace evenkeel::emulation {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;
constexpr unsigned kWarp = 32;

enum class State { kRuns, kWaitsForWarp, kWaitsForBlock, kDone };

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  State state = State::kDone;
  unsigned exchanges = 0;   // so far; their parity names the place of a value
  uint64_t values[2] = {};  // of the present exchange and the one before it, which another lane may still read
};

/// The block that runs.
struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers{};
  ucontext_t scheduler{};
  unsigned now = 0;
  const Entry* kernel = nullptr;
  const void* arguments = nullptr;
};
Block block;

std::vector<Entry>& kernels() {
  static std::vector<Entry> all;
  return all;
}

void run_fiber() {
  block.kernel->thread(block.arguments);
  block.fibers[block.now]->state = State::kDone;
  ::swapcontext(&block.fibers[block.now]->context, &block.scheduler);
}

void wait(State state) {
  auto& fiber = *block.fibers[block.now];
  fiber.state = state;
  ::swapcontext(&fiber.context, &block.scheduler);
}

void start(unsigned threads) {
  while (block.fibers.size() < threads) block.fibers.push_back(std::make_unique<Fiber>());
  for (unsigned i = 0; i < threads; ++i) {
    auto& fiber = *block.fibers[i];
    ::getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get(), fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    ::makecontext(&fiber.context, &run_fiber, 0);
    fiber.state = State::kRuns, fiber.exchanges = 0;
  }
}

/// Runs every thread that does not wait.
void run_all(unsigned threads, Order order) {
  for (unsigned i = 0; i < threads; ++i) {
    block.now = order == Order::kForward ? i : threads - 1 - i;
    if (block.fibers[block.now]->state != State::kRuns) continue;
    nn::cuda::threadIdx.x = block.now;
    ::swapcontext(&block.scheduler, &block.fibers[block.now]->context);
  }
}

/// Lets the threads begin .. end go on if all that are not done wait as `state` says. \return whether any goes on
bool release(unsigned begin, unsigned end, State state) {
  bool any = false;
  for (unsigned i = begin; i < end; ++i) {
    const auto is = block.fibers[i]->state;
    if (is != state && is != State::kDone) return false;
    any = any || is == state;
  }
  for (unsigned i = begin; i < end; ++i)
    if (block.fibers[i]->state == state) block.fibers[i]->state = State::kRuns;
  return any;
}

bool release_some(unsigned threads) {
  bool any = release(0, threads, State::kWaitsForBlock);
  for (unsigned begin = 0; begin < threads; begin += kWarp)
    any = release(begin, std::min(begin + kWarp, threads), State::kWaitsForWarp) || any;
  return any;
}

bool is_done(unsigned threads) {
  for (unsigned i = 0; i < threads; ++i)
    if (block.fibers[i]->state != State::kDone) return false;
  return true;
}

}  // namespace

void wait_for_block() { wait(State::kWaitsForBlock); }
void wait_for_warp() { wait(State::kWaitsForWarp); }

uint64_t exchanged(uint64_t bits, unsigned mask) {
  const unsigned me = block.now, place = block.fibers[me]->exchanges++ % 2;
  block.fibers[me]->values[place] = bits;
  wait_for_warp();
  return block.fibers[(me & ~(kWarp - 1)) | ((me ^ mask) & (kWarp - 1))]->values[place];
}

bool add_kernel(const Entry& kernel) {
  kernels().push_back(kernel);
  return true;
}

const Entry* find_kernel(std::string_view name) {
  for (const auto& kernel : kernels())
    if (kernel.name == name) return &kernel;
  return nullptr;
}

void run_kernel(const Entry& kernel, const void* arguments, unsigned blocks, unsigned threads, Order order) {
  block.kernel = &kernel, block.arguments = arguments;
  nn::cuda::blockDim.x = threads;
  for (unsigned b = 0; b < blocks; ++b) {
    nn::cuda::blockIdx.x = b;
    start(threads);
    for (run_all(threads, order); !is_done(threads); run_all(threads, order))
      if (!release_some(threads)) throw std::runtime_error(std::string(kernel.name) + ": threads wait for ever");
  }
}

}  // namespace evenkeel::emulation
