%struct.Argument = type { i32, i32, ptr }
%struct.Call = type { ptr, ptr, i64 }
%struct.Group = type { ptr, i32 }

@workers = internal global i32 0, align 4
@sleepers = internal global i32 0, align 4
@state = internal global i64 0, align 8
@__TVMBackendParallelLaunch = hidden global ptr @launch, align 8
@__TVMBackendAllocWorkspace = hidden global ptr @allocate, align 8
@__TVMBackendFreeWorkspace = hidden global ptr @release, align 8
@launched = internal global ptr null, align 8
@launched_data = internal global ptr null, align 8
@failed = internal global i32 0, align 4
@done = internal global i32 0, align 4
@is_waiting = internal global i32 0, align 4
@partc_futex = external hidden constant i64, align 8
@is_busy = internal global i32 0, align 4

define i64 @partc_run(ptr noundef readonly %calls, i64 noundef %count) #0 {
entry:
  %result = alloca %struct.Argument, align 8
  %smax = tail call i64 @llvm.smax.i64(i64 %count, i64 0)
  br label %for.cond

for.cond:                                         ; preds = %for.body, %entry
  %i.0 = phi i64 [ 0, %entry ], [ %add, %for.body ]
  %exitcond.not = icmp eq i64 %i.0, %smax
  br i1 %exitcond.not, label %cleanup4, label %for.body

for.body:                                         ; preds = %for.cond
  call void @llvm.lifetime.start.p0(ptr nonnull %result) #9
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %result, i8 0, i64 16, i1 false)
  %arrayidx = getelementptr inbounds nuw %struct.Call, ptr %calls, i64 %i.0
  %0 = load ptr, ptr %arrayidx, align 8
  %arguments = getelementptr inbounds nuw i8, ptr %arrayidx, i64 8
  %1 = load ptr, ptr %arguments, align 8
  %count3 = getelementptr inbounds nuw i8, ptr %arrayidx, i64 16
  %2 = load i64, ptr %count3, align 8
  %conv = trunc i64 %2 to i32
  %call = call i32 %0(ptr noundef null, ptr noundef %1, i32 noundef %conv, ptr noundef nonnull %result) #9
  %tobool.not = icmp eq i32 %call, 0
  %add = add nuw i64 %i.0, 1
  call void @llvm.lifetime.end.p0(ptr nonnull %result) #9
  br i1 %tobool.not, label %for.cond, label %cleanup4

cleanup4:                                         ; preds = %for.cond, %for.body
  %3 = phi i64 [ %add, %for.body ], [ 0, %for.cond ]
  ret i64 %3
}

declare void @llvm.lifetime.start.p0(ptr captures(none)) #1

declare void @llvm.memset.p0.i64(ptr writeonly captures(none), i8, i64, i1 immarg) #2

declare void @llvm.lifetime.end.p0(ptr captures(none)) #1

define void @partc_work(ptr noundef readonly %stop) #0 {
entry:
  %group.i = alloca %struct.Group, align 8
  %0 = atomicrmw add ptr @workers, i32 1 seq_cst, align 4
  %1 = load atomic i32, ptr %stop seq_cst, align 4
  %tobool.not37 = icmp eq i32 %1, 0
  br i1 %tobool.not37, label %while.body.lr.ph, label %while.end19

while.body.lr.ph:                                 ; preds = %entry
  %tasks8.i = getelementptr inbounds nuw i8, ptr %group.i, i64 8
  %2 = getelementptr inbounds nuw i8, ptr %group.i, i64 12
  %3 = load i64, ptr @partc_futex, align 8
  br label %while.body

while.body:                                       ; preds = %while.body.lr.ph, %cleanup
  %4 = load atomic i64, ptr @state seq_cst, align 8
  br label %while.cond2

while.cond2:                                      ; preds = %cleanup22.thread35.i, %while.body
  %5 = load atomic i64, ptr @state seq_cst, align 8
  br label %for.cond.i

for.cond.i:                                       ; preds = %if.end.i, %while.cond2
  %seen.0.i = phi i64 [ %5, %while.cond2 ], [ %12, %if.end.i ]
  %6 = trunc i64 %seen.0.i to i32
  %7 = lshr i32 %6, 16
  %conv2.i = and i32 %6, 65535
  %cmp.not.i.not = icmp samesign ult i32 %conv2.i, %7
  br i1 %cmp.not.i.not, label %if.end.i, label %land.rhs.loopexit

if.end.i:                                         ; preds = %for.cond.i
  %8 = load atomic i64, ptr @launched seq_cst, align 8
  %9 = load atomic i64, ptr @launched_data seq_cst, align 8
  %add.i = add i64 %seen.0.i, 1
  %10 = cmpxchg ptr @state, i64 %seen.0.i, i64 %add.i seq_cst seq_cst, align 8
  %11 = extractvalue { i64, i1 } %10, 1
  %12 = extractvalue { i64, i1 } %10, 0
  br i1 %11, label %if.end7.i, label %for.cond.i

if.end7.i:                                        ; preds = %if.end.i
  %13 = inttoptr i64 %9 to ptr
  %14 = inttoptr i64 %8 to ptr
  call void @llvm.lifetime.start.p0(ptr nonnull %group.i) #9
  store ptr null, ptr %group.i, align 8
  store i32 %7, ptr %tasks8.i, align 8
  store i32 0, ptr %2, align 4
  %call.i = call i32 %14(i32 noundef %conv2.i, ptr noundef nonnull %group.i, ptr noundef %13) #9
  %tobool.not.i = icmp eq i32 %call.i, 0
  br i1 %tobool.not.i, label %if.end11.i, label %if.then9.i

if.then9.i:                                       ; preds = %if.end7.i
  store atomic i32 1, ptr @failed seq_cst, align 4
  br label %if.end11.i

if.end11.i:                                       ; preds = %if.then9.i, %if.end7.i
  %15 = atomicrmw add ptr @done, i32 1 seq_cst, align 4
  %add14.i = add nsw i32 %15, 1
  %cmp15.i = icmp eq i32 %add14.i, %7
  br i1 %cmp15.i, label %land.lhs.true.i, label %cleanup22.thread35.i

land.lhs.true.i:                                  ; preds = %if.end11.i
  %16 = load atomic i32, ptr @is_waiting seq_cst, align 4
  %tobool18.not.i = icmp eq i32 %16, 0
  br i1 %tobool18.not.i, label %cleanup22.thread35.i, label %if.then19.i

if.then19.i:                                      ; preds = %land.lhs.true.i
  %call.i.i = call i64 (i64, ...) @syscall(i64 noundef %3, ptr noundef nonnull @done, i64 noundef 129, i64 noundef 1, i64 noundef 0, i64 noundef 0, i64 noundef 0) #9
  br label %cleanup22.thread35.i

cleanup22.thread35.i:                             ; preds = %if.then19.i, %land.lhs.true.i, %if.end11.i
  call void @llvm.lifetime.end.p0(ptr nonnull %group.i) #9
  br label %while.cond2

land.rhs.loopexit:                                ; preds = %for.cond.i
  %shr.i = lshr i64 %4, 32
  br label %land.rhs

land.rhs:                                         ; preds = %land.rhs.loopexit, %land.rhs
  %round.036 = phi i32 [ %inc, %land.rhs ], [ 0, %land.rhs.loopexit ]
  %17 = load atomic i64, ptr @state seq_cst, align 8
  %shr.i26 = lshr i64 %17, 32
  %cmp7 = icmp eq i64 %shr.i26, %shr.i
  %inc = add nuw nsw i32 %round.036, 1
  %cmp = icmp samesign ult i32 %round.036, 19999
  %or.cond = select i1 %cmp7, i1 %cmp, i1 false
  br i1 %or.cond, label %land.rhs, label %for.cond.cleanup

for.cond.cleanup:                                 ; preds = %land.rhs
  %18 = load atomic i64, ptr @state seq_cst, align 8
  %shr.i28 = lshr i64 %18, 32
  %cmp9.not = icmp eq i64 %shr.i28, %shr.i
  br i1 %cmp9.not, label %if.end, label %cleanup

if.end:                                           ; preds = %for.cond.cleanup
  %19 = atomicrmw add ptr @sleepers, i32 1 seq_cst, align 4
  %20 = load atomic i32, ptr %stop seq_cst, align 4
  %tobool13.not = icmp eq i32 %20, 0
  br i1 %tobool13.not, label %if.then14, label %if.end16

if.then14:                                        ; preds = %if.end
  %call.i31 = call i64 (i64, ...) @syscall(i64 noundef %3, ptr noundef nonnull getelementptr inbounds nuw (i8, ptr @state, i64 4), i64 noundef 128, i64 noundef %shr.i, i64 noundef 0, i64 noundef 0, i64 noundef 0) #9
  br label %if.end16

if.end16:                                         ; preds = %if.then14, %if.end
  %21 = atomicrmw add ptr @sleepers, i32 -1 seq_cst, align 4
  br label %cleanup

cleanup:                                          ; preds = %for.cond.cleanup, %if.end16
  %22 = load atomic i32, ptr %stop seq_cst, align 4
  %tobool.not = icmp eq i32 %22, 0
  br i1 %tobool.not, label %while.body, label %while.end19

while.end19:                                      ; preds = %cleanup, %entry
  %23 = atomicrmw add ptr @workers, i32 -1 seq_cst, align 4
  ret void
}

define void @partc_wake() #0 {
entry:
  %0 = atomicrmw add ptr @state, i64 4294967296 seq_cst, align 8
  %1 = load i64, ptr @partc_futex, align 8
  %call.i = tail call i64 (i64, ...) @syscall(i64 noundef %1, ptr noundef nonnull getelementptr inbounds nuw (i8, ptr @state, i64 4), i64 noundef 129, i64 noundef 2147483647, i64 noundef 0, i64 noundef 0, i64 noundef 0) #9
  ret void
}

define internal range(i32 -1, 1) i32 @launch(ptr noundef %task, ptr noundef %data, i32 noundef %tasks) #0 {
entry:
  %group.i55 = alloca %struct.Group, align 8
  %group.i41 = alloca %struct.Group, align 8
  %group.i = alloca %struct.Group, align 8
  %cmp = icmp sgt i32 %tasks, 0
  br i1 %cmp, label %cond.end, label %cond.false

cond.false:                                       ; preds = %entry
  %0 = load atomic i32, ptr @workers seq_cst, align 4
  %add = add nsw i32 %0, 1
  br label %cond.end

cond.end:                                         ; preds = %entry, %cond.false
  %cond = phi i32 [ %add, %cond.false ], [ %tasks, %entry ]
  %cmp1 = icmp eq i32 %cond, 1
  %cmp2 = icmp sgt i32 %cond, 65535
  %or.cond = or i1 %cmp1, %cmp2
  br i1 %or.cond, label %if.then.thread, label %lor.lhs.false3

if.then.thread:                                   ; preds = %cond.end
  call void @llvm.lifetime.start.p0(ptr nonnull %group.i) #9
  store ptr null, ptr %group.i, align 8
  %tasks1.i75 = getelementptr inbounds nuw i8, ptr %group.i, i64 8
  store i32 %cond, ptr %tasks1.i75, align 8
  %1 = getelementptr inbounds nuw i8, ptr %group.i, i64 12
  store i32 0, ptr %1, align 4
  br label %for.body.i.preheader

lor.lhs.false3:                                   ; preds = %cond.end
  %2 = load atomic i32, ptr @workers seq_cst, align 4
  %tobool.not = icmp eq i32 %2, 0
  br i1 %tobool.not, label %if.then, label %if.end

if.then:                                          ; preds = %lor.lhs.false3
  call void @llvm.lifetime.start.p0(ptr nonnull %group.i) #9
  store ptr null, ptr %group.i, align 8
  %tasks1.i = getelementptr inbounds nuw i8, ptr %group.i, i64 8
  store i32 %cond, ptr %tasks1.i, align 8
  %3 = getelementptr inbounds nuw i8, ptr %group.i, i64 12
  store i32 0, ptr %3, align 4
  %cmp.not6.i = icmp sgt i32 %cond, 0
  br i1 %cmp.not6.i, label %for.body.i.preheader, label %do_all.exit

for.body.i.preheader:                             ; preds = %if.then.thread, %if.then
  br label %for.body.i

for.cond.i:                                       ; preds = %for.body.i
  %inc.i = add nuw nsw i32 %i.07.i, 1
  %exitcond.not.i = icmp eq i32 %inc.i, %cond
  br i1 %exitcond.not.i, label %do_all.exit, label %for.body.i

for.body.i:                                       ; preds = %for.body.i.preheader, %for.cond.i
  %i.07.i = phi i32 [ %inc.i, %for.cond.i ], [ 0, %for.body.i.preheader ]
  %call.i = call i32 %task(i32 noundef %i.07.i, ptr noundef nonnull %group.i, ptr noundef %data) #9
  %tobool.not.i = icmp eq i32 %call.i, 0
  br i1 %tobool.not.i, label %for.cond.i, label %do_all.exit

do_all.exit:                                      ; preds = %for.cond.i, %for.body.i, %if.then
  %cmp.not.lcssa.i = phi i32 [ 0, %if.then ], [ 0, %for.cond.i ], [ -1, %for.body.i ]
  call void @llvm.lifetime.end.p0(ptr nonnull %group.i) #9
  br label %cleanup

if.end:                                           ; preds = %lor.lhs.false3
  %4 = atomicrmw xchg ptr @is_busy, i32 1 seq_cst, align 4
  %tobool6.not = icmp eq i32 %4, 0
  br i1 %tobool6.not, label %if.end9, label %if.then7

if.then7:                                         ; preds = %if.end
  call void @llvm.lifetime.start.p0(ptr nonnull %group.i41) #9
  store ptr null, ptr %group.i41, align 8
  %tasks1.i42 = getelementptr inbounds nuw i8, ptr %group.i41, i64 8
  store i32 %cond, ptr %tasks1.i42, align 8
  %5 = getelementptr inbounds nuw i8, ptr %group.i41, i64 12
  store i32 0, ptr %5, align 4
  %cmp.not6.i43 = icmp sgt i32 %cond, 0
  br i1 %cmp.not6.i43, label %for.body.i45, label %do_all.exit52

for.cond.i49:                                     ; preds = %for.body.i45
  %inc.i50 = add nuw nsw i32 %i.07.i46, 1
  %exitcond.not.i51 = icmp eq i32 %inc.i50, %cond
  br i1 %exitcond.not.i51, label %do_all.exit52, label %for.body.i45

for.body.i45:                                     ; preds = %if.then7, %for.cond.i49
  %i.07.i46 = phi i32 [ %inc.i50, %for.cond.i49 ], [ 0, %if.then7 ]
  %call.i47 = call i32 %task(i32 noundef %i.07.i46, ptr noundef nonnull %group.i41, ptr noundef %data) #9
  %tobool.not.i48 = icmp eq i32 %call.i47, 0
  br i1 %tobool.not.i48, label %for.cond.i49, label %do_all.exit52

do_all.exit52:                                    ; preds = %for.cond.i49, %for.body.i45, %if.then7
  %cmp.not.lcssa.i44 = phi i32 [ 0, %if.then7 ], [ 0, %for.cond.i49 ], [ -1, %for.body.i45 ]
  call void @llvm.lifetime.end.p0(ptr nonnull %group.i41) #9
  br label %cleanup

if.end9:                                          ; preds = %if.end
  store atomic i32 0, ptr @failed seq_cst, align 4
  store atomic i32 0, ptr @done seq_cst, align 4
  %6 = ptrtoint ptr %task to i64
  store atomic i64 %6, ptr @launched seq_cst, align 8
  %7 = ptrtoint ptr %data to i64
  store atomic i64 %7, ptr @launched_data seq_cst, align 8
  %8 = load atomic i64, ptr @state seq_cst, align 8
  %9 = and i64 %8, -4294967296
  %shl = add i64 %9, 4294967296
  %conv17 = sext i32 %cond to i64
  %shl18 = shl nsw i64 %conv17, 16
  %or = or i64 %shl, %shl18
  store atomic i64 %or, ptr @state seq_cst, align 8
  %10 = load atomic i32, ptr @sleepers seq_cst, align 4
  %tobool20.not = icmp eq i32 %10, 0
  %.pre = load i64, ptr @partc_futex, align 8
  br i1 %tobool20.not, label %if.end23, label %if.then21

if.then21:                                        ; preds = %if.end9
  %sub = add nsw i32 %cond, -1
  %conv.i53 = sext i32 %sub to i64
  %call.i54 = tail call i64 (i64, ...) @syscall(i64 noundef %.pre, ptr noundef nonnull getelementptr inbounds nuw (i8, ptr @state, i64 4), i64 noundef 129, i64 noundef %conv.i53, i64 noundef 0, i64 noundef 0, i64 noundef 0) #9
  br label %if.end23

if.end23:                                         ; preds = %if.then21, %if.end9
  %tasks8.i = getelementptr inbounds nuw i8, ptr %group.i55, i64 8
  %11 = getelementptr inbounds nuw i8, ptr %group.i55, i64 12
  br label %while.cond

while.cond:                                       ; preds = %do_task.exit, %if.end23
  %12 = load atomic i64, ptr @state seq_cst, align 8
  br label %for.cond.i56

for.cond.i56:                                     ; preds = %if.end.i, %while.cond
  %seen.0.i = phi i64 [ %12, %while.cond ], [ %19, %if.end.i ]
  %13 = trunc i64 %seen.0.i to i32
  %14 = lshr i32 %13, 16
  %conv2.i = and i32 %13, 65535
  %cmp.not.i = icmp samesign ult i32 %conv2.i, %14
  br i1 %cmp.not.i, label %if.end.i, label %while.end

if.end.i:                                         ; preds = %for.cond.i56
  %15 = load atomic i64, ptr @launched seq_cst, align 8
  %16 = load atomic i64, ptr @launched_data seq_cst, align 8
  %add.i = add i64 %seen.0.i, 1
  %17 = cmpxchg ptr @state, i64 %seen.0.i, i64 %add.i seq_cst seq_cst, align 8
  %18 = extractvalue { i64, i1 } %17, 1
  %19 = extractvalue { i64, i1 } %17, 0
  br i1 %18, label %if.end7.i, label %for.cond.i56

if.end7.i:                                        ; preds = %if.end.i
  %20 = inttoptr i64 %16 to ptr
  %21 = inttoptr i64 %15 to ptr
  call void @llvm.lifetime.start.p0(ptr nonnull %group.i55) #9
  store ptr null, ptr %group.i55, align 8
  store i32 %14, ptr %tasks8.i, align 8
  store i32 0, ptr %11, align 4
  %call.i57 = call i32 %21(i32 noundef %conv2.i, ptr noundef nonnull %group.i55, ptr noundef %20) #9
  %tobool.not.i58 = icmp eq i32 %call.i57, 0
  br i1 %tobool.not.i58, label %if.end11.i, label %if.then9.i

if.then9.i:                                       ; preds = %if.end7.i
  store atomic i32 1, ptr @failed seq_cst, align 4
  br label %if.end11.i

if.end11.i:                                       ; preds = %if.then9.i, %if.end7.i
  %22 = atomicrmw add ptr @done, i32 1 seq_cst, align 4
  %add14.i = add nsw i32 %22, 1
  %cmp15.i = icmp eq i32 %add14.i, %14
  br i1 %cmp15.i, label %land.lhs.true.i, label %do_task.exit

land.lhs.true.i:                                  ; preds = %if.end11.i
  %23 = load atomic i32, ptr @is_waiting seq_cst, align 4
  %tobool18.not.i = icmp eq i32 %23, 0
  br i1 %tobool18.not.i, label %do_task.exit, label %if.then19.i

if.then19.i:                                      ; preds = %land.lhs.true.i
  %call.i.i = call i64 (i64, ...) @syscall(i64 noundef %.pre, ptr noundef nonnull @done, i64 noundef 129, i64 noundef 1, i64 noundef 0, i64 noundef 0, i64 noundef 0) #9
  br label %do_task.exit

do_task.exit:                                     ; preds = %if.end11.i, %land.lhs.true.i, %if.then19.i
  call void @llvm.lifetime.end.p0(ptr nonnull %group.i55) #9
  br label %while.cond

while.end:                                        ; preds = %for.cond.i56
  %24 = load atomic i32, ptr @done seq_cst, align 4
  %cmp4.i = icmp slt i32 %24, %cond
  br i1 %cmp4.i, label %for.body.lr.ph.i, label %await_tasks.exit

for.body.lr.ph.i:                                 ; preds = %while.end
  %25 = load i64, ptr @partc_futex, align 8
  br label %for.body.i59

for.body.i59:                                     ; preds = %for.inc.i, %for.body.lr.ph.i
  %26 = phi i32 [ %24, %for.body.lr.ph.i ], [ %27, %for.inc.i ]
  %round.05.i = phi i32 [ 0, %for.body.lr.ph.i ], [ %inc.i62, %for.inc.i ]
  %cmp1.i = icmp samesign ult i32 %round.05.i, 20000
  br i1 %cmp1.i, label %for.inc.i, label %if.end.i60

if.end.i60:                                       ; preds = %for.body.i59
  store atomic i32 1, ptr @is_waiting seq_cst, align 4
  %conv.i.i = zext i32 %26 to i64
  %call.i.i61 = call i64 (i64, ...) @syscall(i64 noundef %25, ptr noundef nonnull @done, i64 noundef 128, i64 noundef %conv.i.i, i64 noundef 0, i64 noundef 0, i64 noundef 0) #9
  br label %for.inc.i

for.inc.i:                                        ; preds = %if.end.i60, %for.body.i59
  %inc.i62 = add nuw nsw i32 %round.05.i, 1
  %27 = load atomic i32, ptr @done seq_cst, align 4
  %cmp.i = icmp slt i32 %27, %cond
  br i1 %cmp.i, label %for.body.i59, label %await_tasks.exit

await_tasks.exit:                                 ; preds = %for.inc.i, %while.end
  store atomic i32 0, ptr @is_waiting seq_cst, align 4
  %28 = load atomic i32, ptr @failed seq_cst, align 4
  %tobool27.not = icmp ne i32 %28, 0
  %cond28 = sext i1 %tobool27.not to i32
  store atomic i32 0, ptr @is_busy seq_cst, align 4
  br label %cleanup

cleanup:                                          ; preds = %await_tasks.exit, %do_all.exit52, %do_all.exit
  %retval.0 = phi i32 [ %cmp.not.lcssa.i, %do_all.exit ], [ %cmp.not.lcssa.i44, %do_all.exit52 ], [ %cond28, %await_tasks.exit ]
  ret i32 %retval.0
}

define internal ptr @allocate(i32 %device, i32 %number, i64 noundef %bytes, i32 %code, i32 %bits) #3 {
entry:
  %memory = alloca ptr, align 8
  call void @llvm.lifetime.start.p0(ptr nonnull %memory) #9
  store ptr null, ptr %memory, align 8
  %call = call i32 @posix_memalign(ptr noundef nonnull %memory, i64 noundef 64, i64 noundef %bytes) #9
  %tobool.not = icmp eq i32 %call, 0
  %0 = load ptr, ptr %memory, align 8
  %cond = select i1 %tobool.not, ptr %0, ptr null
  call void @llvm.lifetime.end.p0(ptr nonnull %memory) #9
  ret ptr %cond
}

define internal noundef i32 @release(i32 %device, i32 %number, ptr noundef %memory) #4 {
entry:
  tail call void @free(ptr noundef %memory)
  ret i32 0
}

declare i64 @syscall(i64 noundef, ...) #5

declare i32 @posix_memalign(ptr noundef, i64 noundef, i64 noundef) #6

declare void @free(ptr allocptr noundef captures(none)) #7

declare i64 @llvm.smax.i64(i64, i64) #8

attributes #0 = { nounwind }
attributes #1 = { nounwind }
attributes #2 = { nounwind }
attributes #3 = { nounwind }
attributes #4 = { nounwind }
attributes #5 = { nounwind }
attributes #6 = { nounwind }
attributes #7 = { nounwind }
attributes #8 = { nounwind }
attributes #9 = { nounwind }
