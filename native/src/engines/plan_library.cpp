#include "engines/plan_library.hpp"

#include <cstring>
#include <span>
#include <system_error>

#include "engines/processor.hpp"
#include "errors.hpp"
#include "format/facts.gen.hpp"
#include "format/files.hpp"

namespace partc::engines {
namespace {

constexpr const char* kSymbol = "__tvm_ffi_";  // the beginning of the name of every kernel's symbol

}  // namespace

Helpers::Helpers(Work work, Wake wake, std::size_t count, const std::string& path) : wake_(wake) {
  try {
    while (threads_.size() < count) threads_.emplace_back(work, &stop_);
  } catch (const std::system_error&) {  // a limit of the system, or no memory for its stack
    end();
    throw bundle_error(std::to_string(count + 1) + " threads cannot be started on this machine", path,
                       "compile with fewer `threads` for this device, or with 0, and set OMP_NUM_THREADS");
  }
}

void Helpers::end() {
  __atomic_store_n(&stop_, 1, __ATOMIC_SEQ_CST);
  wake_();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Library::Library(const build::Build& build, const std::string& folder, const std::string& name)
    : path_(folder + "/" + name) {
  check_processor(*build.engine.library, path_);
  load_code(build, folder, name);
  plan_ = load_plan(build, folder, plan_file(name));
  find_kernels();
  for (const kernel_plan::KernelConstant& constant : plan_.constants) {
    constants_.emplace_back(constant.data.data.size());
    std::memcpy(constants_.back().data(), constant.data.data.data(), constant.data.data.size());
  }
  arena_ = Pages(kernel_plan::arena_bytes(plan_));
  start_helpers(build.engine.threads ? build.engine.threads : usual_threads());
}

void Library::load_code(const build::Build& build, const std::string& folder, const std::string& name) {
  const std::string content = read_verified(build, folder, name);
  code_ = std::make_unique<Code>(std::as_bytes(std::span(content)), path_);
  run_ = reinterpret_cast<decltype(run_)>(code_->find("partc_run"));
  if (!run_) throw bundle_error("it cannot be loaded: it has no partc_run", path_, kRecompile);
}

/** Kernels check nothing, so all must be as the plan describes them. */
void Library::find_kernels() {
  const void* digest = code_->find("partc_kernels", 32);
  if (!digest || std::memcmp(digest, kernel_plan::kernels_digest(plan_.kernels).data(), 32))
    throw bundle_error("its kernels are not those that kernels.json describes", path_, kRecompile);
  for (const auto& [name, kernel] : plan_.kernels) {
    const auto code = reinterpret_cast<Kernel>(code_->find(kSymbol + name));
    if (!code) throw bundle_error("it has no kernel " + name, path_, kRecompile);
    kernels_[name] = code;
  }
}

void Library::start_helpers(std::size_t threads) {
  const auto work = reinterpret_cast<Helpers::Work>(code_->find("partc_work"));
  const auto wake = reinterpret_cast<Helpers::Wake>(code_->find("partc_wake"));
  if (!work || !wake) throw bundle_error("it cannot be loaded: it has no partc_work", path_, kRecompile);
  helpers_ = std::make_unique<Helpers>(work, wake, threads - 1, path_);
}

kernel_plan::KernelPlan load_plan(const build::Build& build, const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  kernel_plan::KernelPlan plan = kernel_plan::parse_kernel_plan(read_verified(build, folder, name), path);
  const std::uint64_t arena = kernel_plan::arena_bytes(plan);
  const auto peak = build.memory.peak_bytes;
  if (!peak || arena <= *peak) return plan;
  throw bundle_error("its arena takes " + std::to_string(arena) + " bytes, and build.json reckons with " +
                         std::to_string(*peak) + " in all",
                     path, kRecompile);
}

std::string plan_file(const std::string& library) {
  const std::size_t folder = library.rfind('/');
  return (folder == std::string::npos ? "" : library.substr(0, folder + 1)) + std::string(KERNELS_FILE);
}

}  // namespace partc::engines
