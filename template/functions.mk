# Builds each function of the template, linked statically with musl: that takes a third less memory than
# loading the C library of the system (bench/cold-start/README.md).
#
# `sam build` calls build- and a logical id, in the project's folder. It is one command without any syntax
# of a shell, so it does not matter which shell make finds.

build-LockTask: lock-task
build-LockCleaner: lock-cleaner
build-SampleWork: sample-work
build-ScheduledJob: scheduled-job
build-ChargeOrder: charge-order
build-OrderQueue: order-queue

.PHONY: lock-task lock-cleaner sample-work scheduled-job charge-order order-queue
lock-task lock-cleaner sample-work scheduled-job charge-order order-queue:
	cargo lambda build --release --locked --target $(TARGET) --package $@ --bin $@ --lambda-dir "$(ARTIFACTS_DIR)" --flatten $@
